"""Graphs in graphs: each level has a namespace of its own, and all come back together."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from support.builders import config
from support.env import Env, scenario
from support.fresh import fresh
from support.stores import Store


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Memory(TypedDict):
    heard: Annotated[list[str], operator.add]
    word: str


def nested(saver: Any) -> Any:
    """Three levels; the innermost asks a human."""
    inner = StateGraph(State)
    inner.add_node("prepare", lambda _: {"log": ["prepare"]})
    inner.add_node("ask", lambda s: {"log": [f"told {interrupt({'so far': s['log']})}"]})
    inner.add_edge(START, "prepare")
    inner.add_edge("prepare", "ask")
    middle = StateGraph(State)
    middle.add_node("inner", inner.compile())
    middle.add_node("after", lambda _: {"log": ["after"]})
    middle.add_edge(START, "inner")
    middle.add_edge("inner", "after")
    outer = StateGraph(State)
    outer.add_node("before", lambda _: {"log": ["before"]})
    outer.add_node("middle", middle.compile())
    outer.add_edge(START, "before")
    outer.add_edge("before", "middle")
    outer.add_edge("middle", END)
    return outer.compile(checkpointer=saver)


async def levels(store: Store, graph: Any, where: Any) -> list[Any]:
    """The state of each level, from the outermost on."""
    found = []
    state = await store.state(graph, where, subgraphs=True)
    while state is not None:
        found.append((state.values, state.next, [i.value for i in state.interrupts], len(state.config["configurable"])))
        states = [task.state for task in state.tasks if task.state is not None]
        state = states[0] if states else None
    return found


@scenario
async def test_nested_subgraphs_show_their_state_and_resume(env: Env) -> None:
    store = env.open(inline_limit=64)
    await store.invoke(nested(store.saver), {"log": ["start"]}, config())
    other = fresh(env, store)
    graph = nested(other.saver)
    so_far = ["start", "before", "start", "before", "prepare"]
    seen = await levels(other, graph, config())
    assert [level[0]["log"] for level in seen] == [so_far[:2], so_far[:2], [*so_far[:2], "prepare"]]
    assert [level[1] for level in seen] == [("middle",), ("inner",), ("ask",)]
    assert [level[2] for level in seen] == [[{"so far": ["start", "before", "prepare"]}]] * 3
    ended = await other.invoke(graph, Command(resume="yes"), config())
    measure = Store(InMemorySaver(), env.kind, None)
    await measure.invoke(nested(measure.saver), {"log": ["start"]}, config())
    assert ended == await measure.invoke(nested(measure.saver), Command(resume="yes"), config())
    assert ended["log"][-2:] == ["told yes", "after"]
    reader = fresh(env, store)
    assert (await reader.state(nested(reader.saver), config())).values == ended


@scenario
async def test_the_state_of_an_interrupted_subgraph_can_be_edited(env: Env) -> None:
    store = env.open(inline_limit=64)
    graph = nested(store.saver)
    await store.invoke(graph, {"log": ["start"]}, config())
    state = await store.state(graph, config(), subgraphs=True)
    inner = state.tasks[0].state.tasks[0].state
    await store.update(graph, inner.config, {"log": ["edited"]})
    other = fresh(env, store)
    seen = await levels(other, nested(other.saver), config())
    assert seen[2][0]["log"][-1] == "edited"
    ended = await other.invoke(nested(other.saver), Command(resume="yes"), config())
    assert ended["log"][-3:] == ["edited", "told yes", "after"]


def remembering(saver: Any) -> Any:
    """A subgraph that keeps its own memory from one call to the next (checkpointer=True)."""
    inner = StateGraph(Memory)
    inner.add_node("hear", lambda s: {"heard": [s["word"]]})
    inner.add_node("ask", lambda s: {"heard": [interrupt(s["heard"])] if s["word"] == "ask" else []})
    inner.add_edge(START, "hear")
    inner.add_edge("hear", "ask")
    kept = inner.compile(checkpointer=True)

    def call(state: State) -> Any:
        heard = kept.invoke({"word": state["log"][-1]})["heard"]
        return {"log": [f"heard {' '.join(heard)}"]}

    async def acall(state: State) -> Any:
        heard = (await kept.ainvoke({"word": state["log"][-1]}))["heard"]
        return {"log": [f"heard {' '.join(heard)}"]}

    outer = StateGraph(State)
    outer.add_node("call", acall if saver_is_async(saver) else call)
    outer.add_edge(START, "call")
    return outer.compile(checkpointer=saver)


def saver_is_async(saver: Any) -> bool:
    return type(saver).__name__.startswith("Async")


@scenario
async def test_a_subgraph_with_a_memory_of_its_own(env: Env) -> None:
    """Each call comes from another saver, and goes on where the last one was; other threads do not."""
    store = env.open(inline_limit=64)
    for word, heard in (("one", "heard one"), ("two", "heard one two"), ("three", "heard one two three")):
        store = fresh(env, store, auto_setup=True)
        ended = await store.invoke(remembering(store.saver), {"log": [word]}, config())
        assert ended["log"][-1] == heard
    stopped = await store.invoke(remembering(store.saver), {"log": ["ask"]}, config())
    assert [item.value for item in stopped["__interrupt__"]] == [["one", "two", "three", "ask"]]
    other = fresh(env, store)
    ended = await other.invoke(remembering(other.saver), Command(resume="four"), config())
    assert ended["log"][-1] == "heard one two three ask four"
    elsewhere = await other.invoke(remembering(other.saver), {"log": ["five"]}, config("other"))
    assert elsewhere["log"] == ["five", "heard five"]
    everything = await other.list({"configurable": {"thread_id": "t"}})
    assert {item.config["configurable"]["checkpoint_ns"] for item in everything} == {"", "call"}
