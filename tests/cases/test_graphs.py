"""Public bug reports about graphs: histories, interrupts, failures, forks and subgraphs, over several processes."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from support.builders import Story, config, pipeline, whole_thread
from support.env import Env, scenario
from support.stores import Store


def steps(*names: str) -> dict[str, Any]:
    """Nodes that note their own name."""
    return {name: lambda _, name=name: {"trail": [name]} for name in names}


def side_by_side(store: Store, **nodes: Any) -> Any:
    """A graph whose nodes all run in the first step."""
    graph = StateGraph(Story)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph.compile(checkpointer=store.saver)


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


class Fan(TypedDict, total=False):
    subjects: list[str]
    poems: Annotated[list[str], operator.add]


def queue(state: Fan) -> list[Send]:
    return [Send("poem", {"subject": subject}) for subject in state["subjects"]]


def fan(store: Store) -> Any:
    """One node for each subject, queued and held back."""
    graph = StateGraph(Fan)
    graph.add_node("plan", lambda _: {})
    graph.add_node("poem", lambda own: {"poems": [f"on {own['subject']}"]})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", queue, ["poem"])
    graph.add_edge("poem", END)
    return graph.compile(checkpointer=store.saver, interrupt_before=["poem"])


@scenario
async def test_queued_sends_run_in_order_in_another_process(env: Env) -> None:
    """Sends that wait are stored and run as they were queued (langgraph #6456, #6789, langgraph-redis #191)."""
    store, subjects = env.open(), ["sea", "ash", "fog", "ink"]
    await store.invoke(fan(store), {"subjects": subjects, "poems": ["none"]}, config())
    other = env.open()
    waiting = await other.state(fan(other), config())
    assert waiting.next == ("poem",) * 4
    assert waiting.values["poems"] == ["none"]
    finished = await other.invoke(fan(other), None, config())
    assert finished["poems"] == ["none", *(f"on {subject}" for subject in subjects)]


@scenario
async def test_every_run_of_a_thread_interrupts_anew(env: Env) -> None:
    """An answered interrupt does not answer the next run's (langgraph-redis #113)."""
    where = config()
    for n in range(4):
        store = env.open()
        graph = pipeline(store, check=lambda state: {"trail": [interrupt(f"run {state['count']}?")]})
        asked = await store.invoke(graph, {"count": n}, where)
        assert [item.value for item in asked["__interrupt__"]] == [f"run {n}?"]
        assert (await store.state(graph, where)).next == ("check",)
        answered = await store.invoke(graph, Command(resume=f"answer {n}"), where)
        assert "__interrupt__" not in answered
        assert answered["trail"] == [f"answer {k}" for k in range(n + 1)]
        assert (await store.state(graph, where)).next == ()


@scenario
async def test_another_process_sees_and_answers_an_interrupt(env: Env) -> None:
    """The question survives with its value and id, and is answered once (langgraph-redis #134, langgraph #5074)."""
    question = {"ask": "which?", "options": [1, None, ("a", b"b")]}

    def graph(store: Store) -> Any:
        return pipeline(store, **steps("before"), ask=lambda _: {"trail": [interrupt(question)]}, **steps("after"))

    store = env.open()
    asked = await store.invoke(graph(store), {"trail": ["begin"]}, config())
    other = env.open()
    seen = await other.state(graph(other), config())
    assert seen.next == ("ask",)
    assert [(item.id, list(item.value)) for item in seen.interrupts] == [(asked["__interrupt__"][0].id, list(question))]
    assert seen.tasks[0].interrupts[0].value["ask"] == "which?"
    finished = await other.invoke(graph(other), Command(resume={"choice": 1}), config())
    assert finished["trail"] == ["begin", "before", {"choice": 1}, "after"]


def tell_when_written(store: Store, monkeypatch: pytest.MonkeyPatch, channel: str) -> threading.Event:
    """An event that is set when a task's writes to a channel are stored."""
    stored = threading.Event()
    name = "aput_writes" if store.is_async else "put_writes"
    original = getattr(store.saver, name)

    def note(writes: Any) -> None:
        if any(written_to == channel for written_to, _ in writes):
            stored.set()

    async def aput_writes(config: Any, writes: Any, *more: Any) -> None:
        await original(config, writes, *more)
        note(writes)

    def put_writes(config: Any, writes: Any, *more: Any) -> None:
        original(config, writes, *more)
        note(writes)

    monkeypatch.setattr(store.saver, name, aput_writes if store.is_async else put_writes)
    return stored


@scenario
async def test_a_finished_node_does_not_run_again_when_its_neighbour_fails(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one node wrote is durable at once; only the one that failed is repeated (langgraph #976)."""
    runs: list[str] = []
    store = env.open()
    stored = tell_when_written(store, monkeypatch, "trail")

    def quick(_: Any) -> Any:
        runs.append("quick")
        return {"trail": ["quick"]}

    def weak(_: Any) -> Any:
        runs.append("weak")
        assert stored.wait(20), "the neighbour's writes were not stored while this node ran"
        if runs.count("weak") == 1:
            raise ConnectionError("first attempt")
        return {"trail": ["weak"]}

    with pytest.raises(ConnectionError, match="first attempt"):
        await store.invoke(side_by_side(store, quick=quick, weak=weak), {"count": 1}, config())
    other = env.open()
    assert (await other.state(side_by_side(other, quick=quick, weak=weak), config())).next == ("weak",)
    finished = await other.invoke(side_by_side(other, quick=quick, weak=weak), None, config())
    assert sorted(runs) == ["quick", "weak", "weak"]
    assert sorted(finished["trail"]) == ["quick", "weak"]


@scenario
async def test_two_waiting_interrupts_are_answered_by_their_ids(env: Env) -> None:
    """Interrupts of one step keep ids of their own, also when answered one by one (langgraph #6108)."""

    def graph(store: Store) -> Any:
        return side_by_side(
            store, **{name: lambda _, name=name: {"trail": [(name, interrupt(name))]} for name in ("left", "right")}
        )

    for thread, at_once in (("together", True), ("apart", False)):
        store, where = env.open(), config(thread)
        await store.invoke(graph(store), {"count": 1}, where)
        other = env.open()
        waiting = {item.value: item.id for item in (await other.state(graph(other), where)).interrupts}
        assert sorted(waiting) == ["left", "right"]
        answers = {own: f"answer to {value}" for value, own in waiting.items()}
        for some in [answers] if at_once else [{own: text} for own, text in answers.items()]:
            finished = await other.invoke(graph(other), Command(resume=some), where)
        told = sorted(tuple(pair) for pair in finished["trail"])
        assert told == [("left", "answer to left"), ("right", "answer to right")]


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
        outer = StateGraph(Fan)
        outer.add_node("room", inner.compile(checkpointer=True))
        outer.add_edge(START, "room")
        return outer.compile(checkpointer=store.saver)

    for n in range(4):
        store = env.open()
        await store.invoke(graph(store), {"subjects": [f"run {n}"]}, config())
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
        leaf = pipeline_without_saver(dig=lambda _: {"count": 42}, ask=lambda _: {"answer": interrupt("how deep?")})
        middle = pipeline_without_saver(cellar=leaf)
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


def pipeline_without_saver(**nodes: Any) -> Any:
    """A subgraph, which takes its parent's saver."""
    graph = StateGraph(Story)
    before = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    return graph.compile()


@pytest.mark.parametrize("durability", ["sync", "async"])
@scenario
async def test_a_state_that_cannot_be_stored_is_an_error(env: Env, durability: str) -> None:
    """The serializer's error reaches the caller and the thread stays at its last good step (langgraph #4322)."""
    store = env.open()
    nodes = {"good": lambda _: {"count": 8}, "bad": lambda _: {"answer": object()}}
    with pytest.raises(TypeError, match="object"):
        await store.invoke(pipeline(store, **nodes), {"count": 1}, config(), durability=durability)
    other = env.open()
    head = await other.state(pipeline(other, **nodes), config())
    assert (head.values["count"], head.next) == (8, ("bad",))
    repaired = pipeline(other, good=nodes["good"], bad=lambda _: {"answer": "text"})
    assert (await other.invoke(repaired, None, config()))["answer"] == "text"
