"""Retention beside a live run: every order of the commands of two operations, without a sleep.

Whatever the order, what a reader gets is the state that was stored, nothing at all, or an error that says that it is
incomplete; and an error only where the caller said that nothing is going on (grace=0) or deleted the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.builders import checkpoint_id, config
from support.env import Env
from support.interleave import Stepper, every_order
from support.kinds import MONGOMOCK, PYMONGO
from support.scene import BRANCH, TRUNK, Scene, rebuilt

from docstore_saver import DocStoreSaver
from docstore_saver.calls import Plan
from docstore_saver.documents import now
from docstore_saver.errors import IncompleteCheckpointError
from docstore_saver.plans import copying, delta, expiry, retention
from docstore_saver.policies import Keep

HOUR, NONE = timedelta(hours=1), timedelta(0)
NOTHING: dict[str, Any] = {"log": (None, []), "notes": (None, [])}
HEAD, NEW = checkpoint_id(TRUNK[-1]), 9

Live = Callable[[Scene, DocStoreSaver], Plan[Any]]
Other = Callable[[Scene], Plan[Any]]

LIVE: dict[str, Live] = {
    "put": lambda scene, saver: scene.put(saver, NEW, HEAD),
    "put on a branch": lambda scene, saver: scene.put(saver, NEW, checkpoint_id(BRANCH)),
    "put again": lambda scene, saver: scene.put(saver, BRANCH, checkpoint_id(TRUNK[0])),
    "put_writes": lambda scene, saver: saver._plan_put_writes(config(id=HEAD), scene.writes(5), "late", ""),
    "get_tuple": lambda scene, saver: saver._plan_get_tuple(config()),
    "history": lambda scene, saver: delta.history(saver._scope(), saver._reader("").place(config()), ["log", "notes"]),
}


def prune(grace: timedelta) -> Other:
    return lambda scene: retention.prune(scene.new_saver()._scope(), "", "t", Keep(), grace, dry_run=False)


def delete_for_runs(grace: timedelta) -> Other:
    """Of every other checkpoint on the trunk, and of the branch; the head stays."""
    runs = frozenset({"run-1"})
    return lambda scene: retention.delete_for_runs(scene.new_saver()._scope(), "", "t", runs, grace, dry_run=False)


STORED = {"put": NEW, "put on a branch": NEW, "put again": BRANCH}
"""A sweep hides nothing, so what these store stays visible in every order."""

OTHER: dict[str, Other] = {
    "prune": prune(HOUR),
    "prune without grace": prune(NONE),
    "sweep": lambda scene: retention.sweep_thread(scene.new_saver()._scope(), "", "t", HOUR),
    "delete_for_runs": delete_for_runs(HOUR),
    "delete_for_runs without grace": delete_for_runs(NONE),
    "delete_thread": lambda scene: retention.delete_thread(scene.new_saver()._scope(), "", "t"),
    "copy": lambda scene: copying.copy_thread(scene.new_saver()._scope(), "", "t", "copy", overwrite=False),
    "expire": lambda scene: expiry.expire_thread("", "t", {"active_at": {"$lte": now() - HOUR}}),
}


def may_miss(live: str, other: str) -> bool:
    """Whether a checkpoint whose put was under way may turn out to be incomplete, and say so.

    Nobody promised that no run was going on; or the run took longer than grace (what the sweep finds was hidden twice
    as long ago).
    """
    is_late = other == "sweep" and live in ("put on a branch", "put again")
    return is_late or other.endswith("without grace") or other == "delete_thread"


def prepare(scene: Scene, other: str) -> None:
    """For a sweep: what a prune hid two hours ago. For the others: the thread as it is, two hours old."""
    old = now() - 2 * HOUR

    def older(name: str, document: dict[str, Any]) -> dict[str, Any]:
        times = {"created_at": old, **({"touched_at": old} if "touched_at" in document else {})}
        hidden = other == "sweep" and name == "checkpoints" and document["checkpoint_id"] != HEAD
        return {**document, **times, **({"hidden_at": old} if hidden else {})}

    scene.reset(older=older)


def judge(scene: Scene, live: str, other: str, stepper: Stepper) -> str:
    """What the live operation and a new reader see afterwards; fails on a state that was never stored."""
    twins = scene.twins()
    reader = scene.new_saver()
    allowed = {"incomplete"} if may_miss(live, other) else set()
    outcome = "done"
    if stepper.failure is not None:
        assert isinstance(stepper.failure, IncompleteCheckpointError), stepper.failure
        assert allowed, stepper.failure
        outcome = "refused"
    elif live == "get_tuple" and stepper.answer is not None:
        assert stepper.answer.checkpoint["channel_values"] == twins[HEAD]["values"]
    elif live == "history":
        assert rebuilt(stepper.answer) in [twins[HEAD]["history"], *([NOTHING] if other == "delete_thread" else [])]
    if other == "sweep" and live in STORED and stepper.failure is None:
        stored = scene.env.raw["docstore_checkpoints"].find_one({"checkpoint_id": checkpoint_id(STORED[live])})
        assert stored is not None
        assert stored.get("hidden_at") is None
    for thread in ("t", "copy"):
        for row in scene.env.raw["docstore_checkpoints"].find({"thread_id": thread, "hidden_at": None}):
            seen = scene.seen(reader, config(thread, id=row["checkpoint_id"]))
            if seen == "incomplete" and seen in allowed:
                outcome = "incomplete"
            elif seen is not None:
                assert without_writes(seen) == without_writes(twins[row["checkpoint_id"]]), (thread, seen)
    return outcome


def without_writes(seen: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in seen.items() if name != "writes"}


def race(scene: Scene, live: str, other: str) -> list[str]:
    def start() -> tuple[Stepper, Stepper]:
        prepare(scene, other)
        plans = LIVE[live](scene, scene.new_saver()), OTHER[other](scene)
        return Stepper(plans[0], scene.runner), Stepper(plans[1], scene.runner)

    outcomes = []
    for first, second in every_order(start):
        assert second.failure is None, second.failure
        outcomes.append(judge(scene, live, other, first))
    return outcomes


@pytest.mark.kinds(PYMONGO, MONGOMOCK)
@pytest.mark.parametrize("other", OTHER)
@pytest.mark.parametrize("live", LIVE)
def test_every_order_leaves_what_was_stored(env: Env, live: str, other: str) -> None:
    with env.session():
        scene = Scene(env)
        outcomes = race(scene, live, other)
        if not may_miss(live, other):
            assert set(outcomes) == {"done"}
