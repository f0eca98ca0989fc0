"""Configs, checkpoints and histories to test with."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

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


def whole_thread(thread: Any = "t") -> dict[str, Any]:
    """A config that names no namespace."""
    return {"configurable": {"thread_id": thread}}


def written(item: Any) -> list[Any]:
    """The values of a tuple's pending writes, in their order."""
    return [value for _, _, value in item.pending_writes]


class Story(TypedDict, total=False):
    """A graph's state: two channels that replace and one that gathers."""

    count: int
    answer: Any
    trail: Annotated[list[Any], operator.add]


def pipeline(store: Store | None, **nodes: Callable[[Any], Any]) -> Any:
    """A graph of `Story` whose nodes run one after another, on a store's saver; without one it is a subgraph."""
    graph = StateGraph(Story)
    for name, node in nodes.items():
        graph.add_node(name, node)
    for before, after in itertools.pairwise([START, *nodes, END]):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=store.saver if store else None)
