"""A thread to race over: forks, a delta channel, large values, runs; with its twin in an InMemorySaver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from docstore_saver import DocStoreSaver
from docstore_saver.calls import COLLECTIONS, Plan
from docstore_saver.errors import IncompleteCheckpointError
from docstore_saver.runners import SyncRunner
from support.builders import checkpoint, checkpoint_id, config, metadata
from support.env import Env
from support.interleave import runner_for

LARGE = "v" * 200
TRUNK = (0, 2, 4, 6, 8)
BRANCH = 3
"""A checkpoint beside the trunk, child of the first."""


def run_of(n: int) -> str:
    """Every other checkpoint of the trunk is of one run, the branch too; the first and the last are of the other."""
    return f"run-{n // 2 % 2}"


def rebuilt(history: Any) -> dict[str, Any]:
    """A delta history in a form that compares: the seed's value and the values written since."""
    return {
        name: (getattr(part.get("seed"), "value", part.get("seed")), [write[2] for write in part["writes"]])
        for name, part in history.items()
    }


class Scene:
    """Five checkpoints on a trunk and one on a branch; "log" has a snapshot at the first, "notes" none anywhere.

    The saver's processes are new for every race: nothing is known that was not read.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        self._client = env.client()  # one for all: every client has threads of its own
        self.twin = InMemorySaver()
        self.saver = self.new_saver()
        self.saver.setup()
        at = None
        for n in TRUNK:
            at = self._step(n, at)
        self._step(BRANCH, checkpoint_id(0))
        self.runner: SyncRunner = runner_for(self._client, env.database, self.saver._names)
        self._documents = {name: list(self._collection(name).find()) for name in COLLECTIONS}

    def new_saver(self) -> DocStoreSaver:
        return DocStoreSaver(self._client, database=self.env.database, inline_limit=64, auto_setup=False)

    def reset(self, *, older: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None) -> None:
        """Store again what was there in the beginning; `older` may change the documents."""
        for name in COLLECTIONS:
            self._collection(name).delete_many({})
            documents = [dict(document) for document in self._documents[name]]
            self._collection(name).insert_many([older(name, doc) for doc in documents] if older else documents)

    def arguments(self, n: int, parent: str | None) -> tuple[Any, Any, Any, Any]:
        """The arguments of put for a checkpoint: a large value that never changes, one that does, a small one."""
        versions = {"big": 1, "fresh": 100 + n, "x": 200 + n, "log": 300 + n, "notes": 400 + n}
        values: dict[str, Any] = {"big": LARGE, "fresh": f"{n}" * 100, "x": n}
        if parent is None:
            values["log"] = _DeltaSnapshot(["start"])
        counters = {"log": (n, n), "notes": (n + 1, n + 1)}
        more = {"run_id": run_of(n), "counters_since_delta_snapshot": counters}
        new = {name: version for name, version in versions.items() if name != "big" or parent is None}
        return config(id=parent), checkpoint(n, values, versions), metadata(n, **more), new

    def writes(self, n: int) -> list[tuple[str, Any]]:
        return [("log", f"log {n}"), ("notes", f"notes {n} " + LARGE), ("x", n + 1)]

    def put(self, saver: DocStoreSaver, n: int, parent: str | None) -> Plan[None]:
        """A put as a plan; the twin stores it at once."""
        arguments = self.arguments(n, parent)
        self.twin.put(*arguments)
        return saver._plan_put(*arguments)[1]

    def seen(self, saver: DocStoreSaver, where: Any) -> Any:
        """All that a runtime would have of a checkpoint: None if it is not there, "incomplete" if that is said."""
        try:
            found = saver.get_tuple(where)
            if found is None:
                return None
            return self.whole(saver, found)
        except IncompleteCheckpointError:
            return "incomplete"

    @staticmethod
    def whole(saver: Any, found: Any) -> dict[str, Any]:
        channels = [name for name in ("log", "notes") if name not in found.checkpoint["channel_values"]]
        history = saver.get_delta_channel_history(config=found.config, channels=channels)
        return {
            "id": found.config["configurable"]["checkpoint_id"],
            "values": found.checkpoint["channel_values"],
            "history": rebuilt(history),
            "writes": [write[1:] for write in found.pending_writes],
        }

    def twins(self) -> dict[str, Any]:
        """What `whole` must answer for each checkpoint, by id."""
        whole = [self.whole(self.twin, found) for found in self.twin.list(config())]
        return {found["id"]: found for found in whole}

    def _step(self, n: int, parent: str | None) -> str:
        arguments = self.arguments(n, parent)
        task = {**config(id=checkpoint_id(n)), "metadata": {"run_id": run_of(n)}}
        for saver in (self.twin, self.saver):
            saver.put(*arguments)
            saver.put_writes(task, self.writes(n), f"task-{n}")
        return checkpoint_id(n)

    def _collection(self, name: str) -> Any:
        return self.env.raw[f"docstore_{name}"]
