"""Configs, checkpoints and histories to test with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from support.stores import Store


def config(thread: Any = "t", ns: Any = "", id: Any = None, **more: Any) -> dict[str, Any]:
    values = {"thread_id": thread, "checkpoint_ns": ns, **more}
    if id is not None:
        values["checkpoint_id"] = id
    return {"configurable": values}


def checkpoint_id(n: int) -> str:
    """A checkpoint id in LangGraph's form; ids ascend with n."""
    return f"1f0{n:05x}-0000-6000-8000-000000000000"


def checkpoint(n: int, values: Mapping[str, Any] | None = None, versions: Mapping[str, Any] | None = None) -> Any:
    values = dict(values or {})
    return {
        "v": 4,
        "id": checkpoint_id(n),
        "ts": (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n)).isoformat(),
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, n + 1) if versions is None else dict(versions),
        "versions_seen": {},
        "updated_channels": None,
    }


def metadata(step: int = 0, **more: Any) -> dict[str, Any]:
    return {"source": "loop", "step": step, "parents": {}, **more}


async def chain(
    store: Store,
    length: int,
    thread: str = "t",
    ns: str = "",
    *,
    first: int = 0,
    values: Callable[[int], Mapping[str, Any]] = lambda n: {"x": n},
) -> list[dict[str, Any]]:
    """A straight history; answers the configs, oldest first."""
    at, stored = config(thread, ns), []
    for n in range(first, first + length):
        at = await store.put(at, checkpoint(n, values(n)), metadata(n))
        stored.append(at)
    return stored


def ids(tuples: Sequence[Any]) -> list[str]:
    return [item.config["configurable"]["checkpoint_id"] for item in tuples]


def threads(tuples: Sequence[Any]) -> list[str]:
    return [item.config["configurable"]["thread_id"] for item in tuples]
