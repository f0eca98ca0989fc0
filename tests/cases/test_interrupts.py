"""Public bug reports about steps that stop in the middle: interrupts, queued sends, a failure beside a success."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from support.builders import Story, config, pipeline
from support.env import Env, scenario
from support.stores import Store


def note(name: str) -> Any:
    """A node that notes its own name."""
    return lambda _: {"trail": [name]}


def side_by_side(store: Store, **nodes: Any) -> Any:
    """A graph whose nodes all run in the first step."""
    graph = StateGraph(Story)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph.compile(checkpointer=store.saver)


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
    question = {"ask": "which?", "options": [1, None, "b", {"c": 2.5}]}

    def graph(store: Store) -> Any:
        return pipeline(
            store, before=note("before"), ask=lambda _: {"trail": [interrupt(question)]}, after=note("after")
        )

    store = env.open()
    asked = await store.invoke(graph(store), {"trail": ["begin"]}, config())
    other = env.open()
    seen = await other.state(graph(other), config())
    assert seen.next == ("ask",)
    assert [(item.id, item.value) for item in seen.interrupts] == [(asked["__interrupt__"][0].id, question)]
    assert seen.tasks[0].interrupts == seen.interrupts
    finished = await other.invoke(graph(other), Command(resume={"choice": 1}), config())
    assert finished["trail"] == ["begin", "before", {"choice": 1}, "after"]


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


def tell_when_written(store: Store, monkeypatch: pytest.MonkeyPatch, channel: str) -> threading.Event:
    """An event that is set when a task's writes to a channel are stored."""
    stored = threading.Event()
    name = "aput_writes" if store.is_async else "put_writes"
    original = getattr(store.saver, name)

    def look(writes: Any) -> None:
        if any(written_to == channel for written_to, _ in writes):
            stored.set()

    async def aput_writes(config: Any, writes: Any, *more: Any) -> None:
        await original(config, writes, *more)
        look(writes)

    def put_writes(config: Any, writes: Any, *more: Any) -> None:
        original(config, writes, *more)
        look(writes)

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
