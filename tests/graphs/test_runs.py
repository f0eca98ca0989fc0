"""Graphs as people run them: interrupts, processes that end or die, time travel, forks, subgraphs, durability modes."""

from __future__ import annotations

import asyncio
import operator
import time
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from support.builders import config
from support.env import Env, scenario
from support.fresh import fresh
from support.stores import Store

DURABILITIES: list[Any] = ["sync", "async", "exit"]


class State(TypedDict):
    log: Annotated[list[str], operator.add]
    payload: str
    count: int


def build(saver: Any, stop: bool = False) -> Any:
    """plan -> two pieces of work (by Send) and a check -> end, with a value that is stored by itself."""
    graph = StateGraph(State)
    graph.add_node("plan", lambda s: {"log": ["plan"], "count": s["count"] + 1, "payload": f"{s['count']}" * 200})
    graph.add_node("work", lambda job: {"log": [f"work {job['n']}"]})
    graph.add_node("check", lambda s: {"log": [interrupt("fine?") if stop else f"check {s['count']}"]})
    graph.add_node("end", lambda s: {"log": [f"end {len(s['log'])}"]})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda _: [Send("work", {"n": 1}), Send("work", {"n": 2}), "check"])
    graph.add_edge(["work", "check"], "end")
    graph.add_edge("end", END)
    return graph.compile(checkpointer=saver)


def begin(word: str) -> dict[str, Any]:
    return {"log": [word], "payload": "", "count": 0}


def outline(history: list[Any]) -> list[Any]:
    """A history without what two runs never share: ids, times."""
    ids = [item.config["configurable"]["checkpoint_id"] for item in history]
    places = {known: place for place, known in enumerate(ids)}
    lines = []
    for item in history:
        parent = item.parent_config and item.parent_config["configurable"]["checkpoint_id"]
        tasks = [
            (task.name, task.path, task.error, task.result, [i.value for i in task.interrupts]) for task in item.tasks
        ]
        meta = {name: value for name, value in item.metadata.items() if name in ("source", "step", "parents")}
        lines.append((item.values, item.next, tasks, meta, places.get(parent)))
    return lines


def kept_of(before: list[Any], after: list[Any]) -> list[Any]:
    """What there is now of what there was before."""
    known = [item.config for item in before]
    return outline([item for item in after if item.config in known])


@pytest.mark.parametrize("durability", DURABILITIES)
@scenario
async def test_a_thread_is_as_langgraphs_own_saver_keeps_it(env: Env, durability: Any) -> None:
    """Interrupt, resume, a second turn, a replay and two forks; the same state and history line by line."""

    async def story(store: Store, reader: Store) -> list[Any]:
        graph, told = build(store.saver, stop=True), []
        told.append(await store.invoke(graph, begin("a"), config(), durability=durability))
        told.append(outline([await reader.state(build(reader.saver, stop=True), config())]))
        told.append(await store.invoke(graph, Command(resume="yes"), config(), durability=durability))
        graph = build(store.saver)
        told.append(await store.invoke(graph, {"log": ["b"]}, config(), durability=durability))
        history = await store.state_history(graph, config())
        told.append(await store.invoke(graph, None, history[-1].config, durability=durability))
        edited = await store.update(graph, history[0].config, {"log": ["edit"], "count": 7}, as_node="plan")
        told.append(await store.invoke(graph, None, edited, durability=durability))
        told.append(await store.invoke(graph, {"log": ["c"]}, history[0].config, durability=durability))
        told += [outline([await reader.state(graph_of(reader), item.config)])[0][:3] for item in history]
        told.append(outline(await reader.state_history(graph_of(reader), config())))
        return [without_interrupt_ids(item) for item in told]

    store, measure = env.open(inline_limit=64), Store(InMemorySaver(), env.kind, None)
    assert await story(store, fresh(env, store)) == await story(measure, measure)


def graph_of(store: Store) -> Any:
    return build(store.saver)


def without_interrupt_ids(told: Any) -> Any:
    if isinstance(told, dict) and "__interrupt__" in told:
        return {**told, "__interrupt__": [item.value for item in told["__interrupt__"]]}
    return told


@scenario
async def test_every_durability_ends_in_the_same_state(env: Env) -> None:
    store = env.open(inline_limit=64)
    states, histories = {}, {}
    for durability in DURABILITIES:
        where, graph = config(f"t-{durability}"), build(store.saver, stop=True)
        await store.invoke(graph, begin("a"), where, durability=durability)
        await store.invoke(graph, Command(resume="yes"), where, durability=durability)
        other = fresh(env, store)
        states[durability] = outline([await other.state(build(other.saver), where)])[0][:4]
        histories[durability] = outline(await other.state_history(build(other.saver), where))
    assert states["sync"] == states["async"] == states["exit"]
    assert histories["sync"] == histories["async"]
    # Exit keeps the checkpoint at each run's end (and not what a resumed run's tasks answered), and those are the same.
    kept = [(values, following, at) for values, following, _, at, _ in histories["exit"]]
    assert [at["step"] for _, _, at in kept] == [3, 1]
    assert kept == [(line[0], line[1], line[3]) for line in histories["sync"] if line[3]["step"] in (3, 1)]


def late(face: Any) -> Any:
    """A saver whose puts begin late, as those of a slow store do: LangGraph goes on meanwhile."""

    class Late(face):  # type: ignore[misc]  # any face
        def put(self, *arguments: Any) -> Any:
            time.sleep(0.02)
            return super().put(*arguments)

        async def aput(self, *arguments: Any) -> Any:
            await asyncio.sleep(0.02)
            return await super().aput(*arguments)

    return Late


@scenario
async def test_a_join_is_stored_as_it_was_when_it_was_put(env: Env) -> None:
    """put is given the join's own set, which LangGraph fills further while the store is still at the steps before."""

    async def story(store: Store) -> list[Any]:
        graph = build(store.saver)
        for word in ("a", "b"):
            await store.invoke(graph, begin(word) if word == "a" else {"log": [word]}, config())
        history = await store.state_history(graph, config())
        planned = next(item for item in history if "check" in item.next)
        replayed = await store.invoke(graph, None, planned.config)
        return [*((item.metadata["step"], item.next) for item in history), replayed]

    store, measure = env.open(), Store(InMemorySaver(), env.kind, None)
    slow = store.over(late(env.kind.face)(store.client, database=env.database))
    assert await story(slow) == await story(measure)


@scenario
async def test_forks_keep_both_branches(env: Env) -> None:
    store = env.open(inline_limit=64)
    graph = build(store.saver)
    first = await store.invoke(graph, begin("a"), config())
    history = await store.state_history(graph, config())
    planned = next(item for item in history if item.metadata["step"] == 1)
    heads = {first["payload"] + str(first["log"]): history[0].config}
    for n in range(3):
        edited = await store.update(graph, planned.config, {"payload": f"fork {n} " * 50, "count": n}, as_node="plan")
        ended = await store.invoke(graph, None, edited)
        assert f"check {n}" in ended["log"]
        head = await store.state(graph, config())
        heads[ended["payload"] + str(ended["log"])] = head.config
    assert len(heads) == 4
    other = fresh(env, store)
    again = build(other.saver)
    for expected, where in heads.items():
        values = (await other.state(again, where)).values
        assert values["payload"] + str(values["log"]) == expected
    assert kept_of(history, await other.state_history(again, config())) == outline(history)


@scenario
async def test_a_thread_with_int_versions_goes_on_and_forks(env: Env) -> None:
    """An older saver counted versions as ints, so two branches give different values the same version."""

    class Older(env.kind.face):  # type: ignore[name-defined, misc]  # a class that depends on the kind
        get_next_version = BaseCheckpointSaver.get_next_version

    store = env.open(inline_limit=64)
    older = store.over(Older(store.client, database=env.database, inline_limit=64))
    await store.invoke(build(store.saver), begin("z"), config("other"))
    await older.invoke(build(older.saver), begin("a"), config())
    newer = fresh(env, store)
    graph = build(newer.saver)
    gone_on = await newer.invoke(graph, {"log": ["b"]}, config())
    history = await newer.state_history(graph, config())
    branches = {}
    for n, at in enumerate([history[3], history[3], history[len(history) - 3]]):
        edited = await newer.update(graph, at.config, {"payload": f"branch {n} " * 50, "count": 10 + n}, as_node="plan")
        ended = await newer.invoke(graph, None, edited)
        branches[(await newer.state(graph, config())).config["configurable"]["checkpoint_id"]] = ended
    reader = fresh(env, store)
    again = build(reader.saver)
    for head, expected in {**branches, history[0].config["configurable"]["checkpoint_id"]: gone_on}.items():
        assert (await reader.state(again, config(id=head))).values == expected
        versions = (await reader.get(config(id=head))).checkpoint["channel_versions"]
        assert {type(version) for version in versions.values()} == {int}
    assert kept_of(history, await reader.state_history(again, config())) == outline(history)
    strings = (await reader.get(config("other"))).checkpoint["channel_versions"]
    assert {type(version) for version in strings.values()} == {str}
