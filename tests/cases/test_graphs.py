"""Public bug reports about graphs: histories, forks, subgraphs and failures, over several processes."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from support.builders import Story, config, pipeline, whole_thread
from support.env import Env, scenario
from support.stores import Store


def steps(*names: str) -> dict[str, Any]:
    """Nodes that note their own name."""
    return {name: lambda _, name=name: {"trail": [name]} for name in names}


@scenario
async def test_each_line_of_a_history_has_its_own_state(env: Env) -> None:
    """Older states are whole, not the newest one, and the same alone (langchain-mongodb #129, posthog #27048)."""
    store = env.open()
    nodes = {**steps("read", "think"), "write": lambda state: {"trail": ["write"], "count": len(state["trail"])}}
    await store.invoke(pipeline(store, **nodes), {"trail": ["begin"], "count": -1}, config())
    for reader in (store, env.open()):
        graph = pipeline(reader, **nodes)
        history = await reader.state_history(graph, config())
        assert [(item.next, item.values.get("trail"), item.values.get("count")) for item in history] == [
            ((), ["begin", "read", "think", "write"], 3),
            (("write",), ["begin", "read", "think"], -1),
            (("think",), ["begin", "read"], -1),
            (("read",), ["begin"], -1),
            (("__start__",), [], None),
        ]
        for item in history:
            alone = await reader.state(graph, item.config)
            assert (alone.values, alone.next, alone.metadata) == (item.values, item.next, item.metadata)
            assert (alone.config, alone.parent_config) == (item.config, item.parent_config)


@scenario
async def test_a_fork_goes_on_from_where_it_forked(env: Env) -> None:
    """A fork runs what follows its point, not the whole graph (langchain-mongodb #128, langgraph #4543)."""
    ran: list[str] = []

    def graph(store: Store) -> Any:
        def double(state: Any) -> Any:
            ran.append("double")
            return {"count": state["count"] * 2}

        def add(state: Any) -> Any:
            ran.append("add")
            return {"count": state["count"] + 3}

        return pipeline(store, double=double, add=add)

    store = env.open()
    assert (await store.invoke(graph(store), {"count": 4}, config()))["count"] == 11
    point = next(item for item in await store.state_history(graph(store), config()) if item.next == ("add",))
    ran.clear()
    other = env.open()
    fork = await other.update(graph(other), point.config, {"count": 50})
    assert (await other.state(graph(other), fork)).next == ("add",)
    assert (await other.invoke(graph(other), None, fork))["count"] == 53
    assert ran == ["add"]
    stored = await other.get(fork)
    assert stored.parent_config == point.config
    assert stored.metadata["source"] == "update"
    # The branch that was left is as it was; the thread's head is the fork's.
    original = await store.state(graph(store), point.config)
    assert (original.values["count"], original.next) == (8, ("add",))
    history = await store.state_history(graph(store), config())
    assert [item.values.get("count") for item in history] == [53, 50, 11, 8, 4, None]


class House(TypedDict):
    """Shares no channel with the subgraph, so what the subgraph remembers is its own."""

    guest: str


@scenario
async def test_a_subgraph_with_a_memory_of_its_own_remembers(env: Env) -> None:
    """A subgraph with checkpointer=True goes on from its last run (langgraph_checkpoint_firestore #6)."""

    def visit(state: Any) -> Any:
        count = state.get("count", 0) + 1
        return {"count": count, "trail": [f"visit {count}"]}

    def graph(store: Store) -> Any:
        inner = StateGraph(Story)
        inner.add_node("visit", visit)
        inner.add_edge(START, "visit")
        outer = StateGraph(House)
        outer.add_node("room", inner.compile(checkpointer=True))
        outer.add_edge(START, "room")
        return outer.compile(checkpointer=store.saver)

    for n in range(4):
        store = env.open()
        await store.invoke(graph(store), {"guest": f"guest {n}"}, config())
    reader = env.open()
    room = (await reader.get(config(ns="room"))).checkpoint["channel_values"]
    assert (room["count"], room["trail"]) == (4, [f"visit {n}" for n in range(1, 5)])
    assert {item.config["configurable"]["checkpoint_ns"] for item in await reader.list(config())} == {""}
    namespaces = {item.config["configurable"]["checkpoint_ns"] for item in await reader.list(whole_thread())}
    assert namespaces == {"", "room"}


@scenario
async def test_nested_subgraphs_are_seen_while_they_wait(env: Env) -> None:
    """The state of a graph in a graph in a graph is stored under its namespace and resumes (langgraph #2142)."""

    def graph(store: Store) -> Any:
        leaf = pipeline(None, dig=lambda _: {"count": 42}, ask=lambda _: {"answer": interrupt("how deep?")})
        middle = pipeline(None, cellar=leaf)
        return pipeline(store, house=middle)

    store = env.open()
    await store.invoke(graph(store), {"count": 1}, config())
    other = env.open()
    house = await other.state(graph(other), config(), subgraphs=True)
    cellar = house.tasks[0].state.tasks[0].state
    assert (cellar.values["count"], cellar.next) == (42, ("ask",))
    assert house.values["count"] == 1
    found = {item.config["configurable"]["checkpoint_ns"] for item in await other.list(whole_thread())}
    names = {tuple(part.partition(":")[0] for part in ns.split("|")) for ns in found}
    assert len(found) == 3
    assert names == {("",), ("house",), ("house", "cellar")}
    finished = await other.invoke(graph(other), Command(resume="very"), config())
    assert (finished["answer"], finished["count"]) == ("very", 42)


@scenario
async def test_a_state_that_cannot_be_stored_is_an_error(env: Env) -> None:
    """The serializer's error reaches the caller and the thread stays at its last good step (langgraph #4322)."""
    store = env.open()
    nodes = {"good": lambda _: {"count": 8}, "bad": lambda _: {"answer": object()}}
    with pytest.raises(TypeError, match="object"):
        await store.invoke(pipeline(store, **nodes), {"count": 1}, config(), durability="sync")
    other = env.open()
    head = await other.state(pipeline(other, **nodes), config())
    assert (head.values["count"], head.next) == (8, ("bad",))
    repaired = pipeline(other, good=nodes["good"], bad=lambda _: {"answer": "text"})
    assert (await other.invoke(repaired, None, config()))["answer"] == "text"
