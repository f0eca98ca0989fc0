"""A process that dies behind any single command of an operation: nothing visible is half, and a second run finishes.

The operation is stopped after its first command, its second, and so on; what it left is read by a new saver, then the
same operation runs again, and the store must be as if it had never been stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.builders import checkpoint, checkpoint_id, config, metadata
from support.env import Env
from support.interleave import Stepper
from support.kinds import MONGOMOCK, PYMONGO
from support.scene import TRUNK, Scene

from docstore_saver import DocStoreSaver
from docstore_saver.calls import COLLECTIONS, Plan
from docstore_saver.documents import now
from docstore_saver.plans import copying, expiry, retention
from docstore_saver.policies import Keep

pytestmark = pytest.mark.kinds(PYMONGO, MONGOMOCK)
HEAD = checkpoint_id(TRUNK[-1])
HOUR, NONE = timedelta(hours=1), timedelta(0)
RUNS = frozenset({"run-1"})

OPERATIONS: dict[str, Callable[[DocStoreSaver], Plan[Any]]] = {
    "prune": lambda saver: retention.prune(saver._scope(), "", "t", Keep(), NONE, dry_run=False),
    "hide": lambda saver: retention.prune(saver._scope(), "", "t", Keep(), HOUR, dry_run=False),
    "delete_for_runs": lambda saver: retention.delete_for_runs(saver._scope(), "", "t", RUNS, NONE, dry_run=False),
    "delete_thread": lambda saver: retention.delete_thread(saver._scope(), "", "t"),
    "copy_thread": lambda saver: copying.copy_thread(saver._scope(), "", "t", "copy", overwrite=False),
    "overwrite": lambda saver: copying.copy_thread(saver._scope(), "", "t", "copy", overwrite=True),
    "expire": lambda saver: expiry.expire_thread("", "t", {"active_at": {"$lte": now() + HOUR}}),
}
VOLATILE = ("touched_at", "created_at", "hidden_at", "put_id", "value_id")


def old_thread(scene: Scene, name: str) -> None:
    old = now() - 2 * HOUR
    stamp = {"active_at": old} if name == "expire" else {}

    def older(_: str, document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "created_at": old, **({"touched_at": old} if "touched_at" in document else {}), **stamp}

    scene.reset(older=older)
    if name == "overwrite":
        saver = scene.new_saver()
        saver.put(config("copy"), checkpoint(0, {"x": "another thread", "y": "v" * 100}), metadata(), {"x": 1, "y": 1})


def stop_after(stepper: Stepper, commands: int) -> bool:
    """Whether it was stopped before its end."""
    for _ in range(commands):
        stepper.advance()
    return bool(stepper.pending())


def everything(scene: Scene) -> dict[str, Any]:
    """All documents without what differs from one run to the next."""
    return {
        document["_id"]: {name: value for name, value in document.items() if name not in VOLATILE}
        for name in COLLECTIONS
        for document in scene.env.raw[f"docstore_{name}"].find()
    }


def require_whole(scene: Scene, name: str, stopped_after: int) -> None:
    """Every checkpoint that a new process sees is what was stored; of a thread it sees its head or nothing."""
    twins = scene.twins()
    reader = scene.new_saver()
    for thread in ("t", "copy"):
        for found in reader.list(config(thread)):
            if found.checkpoint["channel_values"]["x"] != "another thread":
                whole = scene.whole(reader, found)
                twin = twins[whole["id"]]
                if name.startswith("delete_for_runs"):  # which hides writes of its runs elsewhere
                    whole, twin = {**whole, "writes": None}, {**twin, "writes": None}
                assert whole == twin, (thread, stopped_after)
        latest = reader.get_tuple(config(thread))
        if latest is not None and latest.checkpoint["channel_values"]["x"] != "another thread":
            assert latest.config["configurable"]["checkpoint_id"] == HEAD, (thread, stopped_after)
            if thread == "copy":
                assert len(list(reader.list(config(thread)))) == len(twins), stopped_after


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_second_run_finishes_what_the_first_began(env: Env, name: str) -> None:
    with env.session():
        scene = Scene(env)
        old_thread(scene, name)
        assert Stepper(OPERATIONS[name](scene.new_saver()), scene.runner).finish() >= 3
        finished = everything(scene)
        commands = 0
        while True:
            old_thread(scene, name)
            first = Stepper(OPERATIONS[name](scene.new_saver()), scene.runner)
            if not stop_after(first, commands):
                break
            require_whole(scene, name, commands)
            second = Stepper(OPERATIONS[name](scene.new_saver()), scene.runner)
            second.finish()
            if second.failure is not None:
                # The copy was shown before the first run died: it exists.
                assert name == "copy_thread", (commands, second.failure)
            require_whole(scene, name, commands)
            settle(scene, name)
            assert everything(scene) == finished, commands
            commands += 1
        assert commands >= 3


def settle(scene: Scene, name: str) -> None:
    """What a copy left for later (its commit, the mark of its checkpoints) goes with a sweep."""
    if name in ("copy_thread", "overwrite"):
        Stepper(retention.sweep_thread(scene.new_saver()._scope(), "", "copy", NONE), scene.runner).finish()


@pytest.mark.parametrize("which", ["put", "put_writes"])
def test_a_put_cut_short_between_the_parts_of_a_value(env: Env, which: str) -> None:
    """A value's parts may take several commands; without its document nothing refers to them: a sweep takes them."""
    with env.session():
        scene = Scene(env)
        before = everything(scene)
        large = "p" * 30_000_000  # two commands of its own
        commands = 0
        while True:
            scene.reset()
            saver = scene.new_saver()
            if which == "put":
                new = checkpoint(99, {"x": 1, "large": large}, {"x": 999, "large": 999})
                plan = saver._plan_put(config(id=HEAD), new, metadata(99), {"x": 999, "large": 999})[1]
            else:
                plan = saver._plan_put_writes(config(id=HEAD), [("large", large)], "new", "")
            if not stop_after(Stepper(plan, scene.runner), commands):
                break
            require_whole(scene, which, commands)
            cut = Stepper(retention.sweep_thread(scene.new_saver()._scope(), "", "t", NONE), scene.runner)
            cut.finish()
            assert everything(scene) == before, commands
            commands += 1
        assert commands >= 3


@pytest.mark.parametrize("position", range(4))
def test_values_collected_in_part(env: Env, position: int) -> None:
    """A collector that dies between the head of a value and its other parts leaves parts that a second one takes."""
    with env.session():
        scene = Scene(env)
        before = everything(scene)
        saver = scene.new_saver()
        at = saver.put(config("other"), checkpoint(0, {"large": "p" * 4_000_000}), metadata(), {"large": 1})
        assert at["configurable"]["thread_id"] == "other"
        scene.env.raw["docstore_checkpoints"].delete_many({"thread_id": "other"})
        writing = 0
        first = Stepper(retention.sweep_thread(saver._scope(), "", "other", NONE), scene.runner)
        while (calls := first.pending()) and writing <= position:
            writing += any(call.method == "delete_many" for call in calls)
            if writing <= position:
                first.advance()
        Stepper(retention.sweep_thread(saver._scope(), "", "other", NONE), scene.runner).finish()
        assert everything(scene) == before


def test_the_steps_are_commands(env: Env) -> None:
    """The proof that the tests above stop where they say: a prune hides, deletes and collects by separate commands."""
    with env.session():
        scene = Scene(env)
        old_thread(scene, "prune")
        stepper = Stepper(OPERATIONS["prune"](scene.new_saver()), scene.runner)
        sent: list[tuple[str, str]] = []
        while calls := stepper.pending():
            sent += [(call.method, call.collection) for call in calls if call.method not in ("find", "aggregate")]
            stepper.advance()
        assert sent == [
            ("update_many", "checkpoints"),  # hide
            ("update_many", "checkpoints"),  # lineage: the one with a seed
            ("update_many", "checkpoints"),  # lineage: those without
            ("delete_many", "checkpoints"),
            ("delete_many", "writes"),
            ("delete_many", "values"),
            ("delete_many", "values"),
        ]
