"""Prints as JSON how far put, put_writes and get_tuple raise a process's memory above the caller's own state.

Run by tests/test_large_values.py: a process of its own for each case, so that one case's heap is not another's.
Usage: measure_memory.py URI DATABASE FACE CASE
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MB = 1024 * 1024
sys.path.insert(0, str(Path(__file__).parents[1]))

from support.builders import checkpoint, config, metadata  # noqa: E402  # after the path

from docstore_saver import AsyncDocStoreSaver, DocStoreSaver  # noqa: E402  # after the path


def text(size: int) -> str:
    """A string, which unlike bytes is copied by the serializer; not the same twice."""
    return os.urandom(size // 2).hex()


CASES: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any], list[Any]]]] = {
    "state of 100 MB": lambda: ({f"c{i}": text(5 * MB) for i in range(20)}, {}, []),
    "state of 100 MB in small values": lambda: ({f"c{i}": text(MB) for i in range(100)}, {}, []),
    "channel of 40 MB": lambda: ({"c": text(40 * MB)}, {}, []),
    "1200 channels of 15 KB": lambda: ({f"c{i}": text(15_000) for i in range(1200)}, {}, []),
    "1200 writes of 15 KB": lambda: ({}, {}, [("c", text(15_000)) for _ in range(1200)]),
    "metadata of 20 MB": lambda: ({}, {"blob": text(20 * MB)}, []),
}


def peak(kind: str) -> float:
    """VmHWM or VmRSS of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) / 1024
    raise AssertionError(kind)


def reset_peak() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return peak("VmRSS")


async def measure(call: Callable[[], Any]) -> tuple[float, Any]:
    before = reset_peak()
    result = call()
    if asyncio.iscoroutine(result):
        result = await result
    return peak("VmHWM") - before, result


async def main() -> None:
    uri, database, face, case = sys.argv[1:]
    values, more, writes = CASES[case]()
    saver: Any = (DocStoreSaver if face == "sync" else AsyncDocStoreSaver).from_conn_string(uri, database)
    a = "" if face == "sync" else "a"
    put, put_writes, get = (getattr(saver, a + name) for name in ("put", "put_writes", "get_tuple"))
    warm = put(config("warm"), checkpoint(0, {"x": text(MB)}), metadata(), {"x": 1})
    if a:
        await warm
    state = checkpoint(1, values)
    raised = {}
    raised["put"], _ = await measure(lambda: put(config(), state, metadata(**more), state["channel_versions"]))
    where = config(id=state["id"])
    raised["put_writes"], _ = await measure(lambda: put_writes(where, writes, "task"))
    raised["get"], found = await measure(lambda: get(where))
    assert found.checkpoint["channel_values"] == values
    assert all(found.metadata[name] == value for name, value in more.items())
    assert [write[1:] for write in found.pending_writes] == writes
    largest = max([len(value) for value in [*values.values(), *more.values(), *(value for _, value in writes)]])
    total = sum(len(value) for value in [*values.values(), *more.values(), *(value for _, value in writes)])
    raised["get"] -= total / MB
    print(json.dumps({"largest": largest / MB, "raised": raised}))


asyncio.run(main())
