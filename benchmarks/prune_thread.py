"""What a prune of a very long thread frees and costs: bytes, commands, memory, seconds.

    python -m benchmarks.prune_thread [CHECKPOINTS] [BYTES]      default: 10,000 checkpoints, 200 KB

Every checkpoint has a channel of that many new bytes and writes one delta channel, which has a snapshot at every
hundredth. All of it is on a mongod of its own, from the `devserver` extra.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pymongo
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from docstore_saver import DocStoreSaver
from docstore_saver.devserver import DevServer

SNAPSHOT_EVERY = 100
DATABASE = "prune_thread"


class Counter(CommandListener):
    """Counts commands."""

    def __init__(self) -> None:
        self.count = 0

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name not in ("hello", "ping", "endSessions"):
            self.count += 1

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Only starts are counted."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Only starts are counted."""


def load(saver: DocStoreSaver, checkpoints: int, size: int) -> None:
    at: Any = {"configurable": {"thread_id": "long", "checkpoint_ns": ""}}
    for n in range(checkpoints):
        is_seed = n % SNAPSHOT_EVERY == 0
        values: dict[str, Any] = {"page": os.urandom(size), "n": n}
        if is_seed:
            values["log"] = _DeltaSnapshot([f"start {n}"])
        versions = {"page": n + 1, "n": n + 1, "log": n + 1}
        checkpoint: Any = {
            "v": 4,
            "id": f"1f0{n:05x}-0000-6000-8000-000000000000",
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {},
            "updated_channels": None,
        }
        steps = n % SNAPSHOT_EVERY
        counters = {"counters_since_delta_snapshot": {"log": (steps, steps)}} if steps else {}
        metadata: Any = {"source": "loop", "step": n, "parents": {}, **counters}
        at = saver.put(at, checkpoint, metadata, versions)
        saver.put_writes(at, [("log", f"write {n}")], f"task-{n}", "~1")


def stored(client: pymongo.MongoClient[Any]) -> int:
    """Bytes of all documents, uncompressed."""
    names = client[DATABASE].list_collection_names()
    return sum(int(client[DATABASE].command("collStats", name)["size"]) for name in names)


def memory(kind: str) -> float:
    """VmHWM or VmRSS of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(kind))


def main(checkpoints: int, size: int) -> None:
    with DevServer() as server, pymongo.MongoClient[Any](server.uri) as client:
        with DocStoreSaver.from_conn_string(server.uri, database=DATABASE) as saver:
            started = time.perf_counter()
            load(saver, checkpoints, size)
            print(f"loaded {checkpoints:,} checkpoints in {time.perf_counter() - started:.0f} s")
        before, counter = stored(client), Counter()
        with DocStoreSaver.from_conn_string(server.uri, database=DATABASE, event_listeners=[counter]) as saver:
            where: Any = {"configurable": {"thread_id": "long", "checkpoint_ns": ""}}
            head = saver.get_tuple(where)
            history = saver.get_delta_channel_history(config=where, channels=["log"])
            plan = saver.prune(["long"], grace=0, dry_run=True)
            counter.count = 0
            Path("/proc/self/clear_refs").write_text("5")
            base, started = memory("VmRSS"), time.perf_counter()
            removed = saver.prune(["long"], grace=0)
            seconds, used = time.perf_counter() - started, memory("VmHWM") - base
            commands = counter.count
            assert plan == removed, (plan, removed)
            assert saver.get_tuple(where) == head
            assert saver.get_delta_channel_history(config=where, channels=["log"]) == history
        after = stored(client)
        print(f"prune: {seconds:.1f} s, {commands} commands, {used:.0f} MB of memory above what was there")
        print(f"bytes: {before:,} -> {after:,} ({100 * (1 - after / before):.2f} % freed); {removed}")


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(*(arguments or [10_000, 200_000]))
