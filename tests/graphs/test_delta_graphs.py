"""Graphs with delta channels: a new saver restores exactly what the graph held while it ran.

A delta channel is not stored but rebuilt from the writes of its ancestors, so a lost, doubled or misplaced write shows
only in what a reload answers. The live values come from LangGraph's own "checkpoints" stream.
"""

from __future__ import annotations

import asyncio
import operator
import random
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, interrupt
from support.builders import config
from support.env import Env, scenario
from support.kinds import ON_MONGOD
from support.stores import Store

NEVER = 1000
FREQUENCIES = [1, 2, 3, NEVER]
DURABILITIES: list[Any] = ["sync", "async", "exit"]
WRITERS = ["a", "b", "c", "d"]
THREADS = {"pymongo": 68, "async-pymongo": 66, "motor": 66}
"""200 in all."""


def fold(value: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Depends on every write and on their order, and not on how they are batched."""
    for write in writes:
        value = [*value, *write]
    return value


# 4 parallel writers.


class FanState(TypedDict):
    log: Annotated[list[str], DeltaChannel(fold, snapshot_frequency=NEVER)]
    turns: Annotated[int, operator.add]


def fan_graph(saver: Any, rounds: int) -> Any:
    """`rounds` times 4 nodes side by side, which end in a random order, all writing one channel."""

    def writer(name: str) -> Callable[[FanState], Any]:
        def write(state: FanState) -> Any:
            time.sleep(random.random() * 0.003)
            return {"log": [f"{name}{state['turns']} after {len(state['log'])}"]}

        return write

    graph = StateGraph(FanState)
    graph.add_node("fan", lambda _: {"turns": 1})
    graph.add_node("join", lambda _: {})
    for name in WRITERS:
        graph.add_node(name, writer(name))
        graph.add_edge("fan", name)
    graph.add_edge(START, "fan")
    graph.add_edge(WRITERS, "join")
    graph.add_conditional_edges("join", lambda state: "fan" if state["turns"] < rounds else END)
    return graph.compile(checkpointer=saver)


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_parallel_writers_restore_the_live_value_in_every_thread(env: Env) -> None:
    store, count = env.open(), THREADS[env.kind.name]
    graph = fan_graph(store.saver, 2)

    async def run(n: int) -> Any:
        live = await store.invoke(graph, {"log": ["start"], "turns": 0}, config(f"t{n}"))
        assert len(live["log"]) == 1 + 2 * len(WRITERS)
        return live

    live = await in_groups(store, [run(n) for n in range(count)])
    fresh = env.open()
    again = fan_graph(fresh.saver, 2)
    restored = [(await fresh.state(again, config(f"t{n}"))).values for n in range(count)]
    assert restored == live


async def in_groups(store: Store, runs: list[Any]) -> list[Any]:
    """Some at a time where there is an event loop, else one after another."""
    if not store.is_async:
        return [await run for run in runs]
    answers = []
    for at in range(0, len(runs), 12):
        answers += await asyncio.gather(*runs[at : at + 12])
    return answers


# Every way that a thread goes on.


def line_state(frequency: int) -> Any:
    often, never = (DeltaChannel(fold, snapshot_frequency=n) for n in (frequency, NEVER))
    fields = {"log": often, "notes": never, "plain": operator.add}
    return TypedDict("State", {"count": int, **{name: Annotated[list[str], kind] for name, kind in fields.items()}})


def line_graph(saver: Any, frequency: int, stop_at: int = -1) -> Any:
    """A node that writes, two side by side, and round again until six are done; `stop_at` asks a human."""

    def step(state: Any) -> Any:
        said = interrupt("go on?") if state["count"] == stop_at else f"step {state['count']}"
        return {"log": [said], "plain": [said], "count": state["count"] + 1}

    def left(state: Any) -> Any:
        return {"log": [f"left {state['count']}"], "plain": [f"left {state['count']}"]}

    def right(state: Any) -> Any:
        # Not in every round: what is not written must neither vanish nor come twice.
        note = {"notes": [f"note {state['count']}"]} if state["count"] % 2 else {}
        return {"log": [f"right {state['count']}"], "plain": [f"right {state['count']}"], **note}

    graph = StateGraph(line_state(frequency))
    graph.add_node("step", step)
    graph.add_node("left", left)
    graph.add_node("right", right)
    graph.add_edge(START, "step")
    graph.add_edge("step", "left")
    graph.add_edge("step", "right")
    graph.add_conditional_edges("left", lambda state: "step" if state["count"] % 3 else END)
    return graph.compile(checkpointer=saver)


def start(name: str) -> dict[str, Any]:
    return {"log": [name], "notes": [name], "plain": [name], "count": 0}


class Told:
    """A thread's life, told by every checkpoint that was emitted: id -> the values that the graph held then."""

    def __init__(self, env: Env, frequency: int, durability: Any) -> None:
        self.env, self.frequency, self.durability = env, frequency, durability
        self.live: dict[str, Any] = {}

    async def run(self, value: Any, where: Any, stop_at: int = -1) -> dict[str, Any]:
        """One run by a saver of its own, as in another process; answers the values at its end."""
        store = self.env.open(inline_limit=64)
        graph = line_graph(store.saver, self.frequency, stop_at)
        options: Any = {"stream_mode": ["checkpoints", "values"], "durability": self.durability}
        if store.is_async:
            events = [event async for event in graph.astream(value, where, **options)]
        else:
            events = list(graph.stream(value, where, **options))
        for mode, event in events:
            if mode == "checkpoints":
                self.live[event["config"]["configurable"]["checkpoint_id"]] = event["values"]
        return next(event for mode, event in reversed(events) if mode == "values" and "__interrupt__" not in event)

    async def update(self, where: Any, values: dict[str, Any], expected: dict[str, Any]) -> Any:
        """update_state as the node `left`; answers the config that it made."""
        store = self.env.open(inline_limit=64)
        made = await store.update(line_graph(store.saver, self.frequency), where, values, as_node="left")
        self.live[made["configurable"]["checkpoint_id"]] = expected
        return made

    async def history(self, where: Any) -> list[Any]:
        store = self.env.open(inline_limit=64)
        return await store.state_history(line_graph(store.saver, self.frequency), where)

    async def check(self, where: Any, head: dict[str, Any]) -> None:
        """A new saver answers the head, every line of the history, and every checkpoint by its id, as they were."""
        store = self.env.open(inline_limit=64)
        graph = line_graph(store.saver, self.frequency)
        assert (await store.state(graph, where)).values == head
        found = [item for item in await store.state_history(graph, where) if item.metadata["step"] != -2]
        assert found
        for item in found:
            id = item.config["configurable"]["checkpoint_id"]
            assert visible(item.values) == visible(self.live[id])
            alone = await store.state(graph, item.config)
            assert (alone.values, alone.next) == (item.values, item.next)


def visible(values: Any) -> dict[str, Any]:
    """A delta channel that nothing was written to is restored as empty, and not told at all while it runs."""
    return {name: value for name, value in values.items() if value != []}


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("frequency", FREQUENCIES)
@scenario
async def test_a_thread_that_resumes_and_goes_on(env: Env, frequency: int, durability: Any) -> None:
    told, where = Told(env, frequency, durability), config("t")
    stopped = await told.run(start("begin"), where, stop_at=1)
    await told.check(where, stopped)
    resumed = await told.run(Command(resume="a human"), where, stop_at=1)
    assert resumed["log"] == resumed["plain"]
    assert resumed["log"].count("a human") == 1
    await told.check(where, resumed)
    longer = await told.run({"log": ["more"], "plain": ["more"], "notes": ["more"]}, where)
    assert longer["log"] == longer["plain"]
    assert longer["log"][: len(resumed["log"])] == resumed["log"]
    assert longer["notes"] == ["begin", "note 1", "note 3", "more", "note 5"]
    await told.check(where, longer)


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("frequency", FREQUENCIES)
@scenario
async def test_a_fork_from_an_older_checkpoint_keeps_both_branches(env: Env, frequency: int, durability: Any) -> None:
    told, where = Told(env, frequency, durability), config("t")
    await told.run(start("begin"), where)
    for name in ("second", "third"):
        first = await told.run({"log": [name], "plain": [name]}, where)
    await told.check(where, first)
    history = await told.history(where)
    older = history[len(history) // 2]
    forked = await told.run({"log": ["fork"], "plain": ["fork"]}, older.config)
    assert forked["log"] == forked["plain"]
    assert forked["log"][: len(older.values["log"])] == older.values["log"]
    await told.check(where, forked)
    again = await told.run({"log": ["twig"], "plain": ["twig"]}, history[0].config)
    assert again["log"][: len(first["log"])] == first["log"]
    await told.check(where, again)


@pytest.mark.parametrize("frequency", FREQUENCIES)
@scenario
async def test_update_state_forks(env: Env, frequency: int) -> None:
    told, where = Told(env, frequency, "sync"), config("t")
    head = await told.run(start("begin"), where)
    history = await told.history(where)
    for older in (history[0], history[len(history) // 2], history[-2]):
        values = {**older.values, "notes": older.values.get("notes", [])}
        expected = plus(values, "edit")
        made = await told.update(older.config, {"log": ["edit"], "plain": ["edit"]}, expected)
        await told.check(where, expected)
        once_more = await told.update(made, {"notes": ["edit"]}, {**expected, "notes": [*values["notes"], "edit"]})
        gone_on = await told.run({"log": ["go"], "plain": ["go"], "count": 0}, once_more)
        assert gone_on["log"][: len(expected["log"])] == expected["log"]
        assert gone_on["log"] == gone_on["plain"]
        await told.check(where, gone_on)
    assert told.live[history[0].config["configurable"]["checkpoint_id"]] == head


def plus(values: dict[str, Any], word: str) -> dict[str, Any]:
    return {**values, "log": [*values["log"], word], "plain": [*values["plain"], word]}


@pytest.mark.parametrize("frequency", FREQUENCIES)
@scenario
async def test_an_overwrite_resets_a_delta_channel(env: Env, frequency: int) -> None:
    told, where = Told(env, frequency, "async"), config("t")
    head = await told.run(start("begin"), where)
    emptied = {**head, "log": ["reset"]}
    await told.update(where, {"log": Overwrite(["reset"])}, emptied)
    await told.check(where, emptied)
    gone_on = await told.run({"log": ["go"], "count": 0}, where)
    assert gone_on["log"][:2] == ["reset", "go"]
    await told.check(where, gone_on)


@pytest.mark.parametrize("durability", DURABILITIES)
@scenario
async def test_histories_agree_with_langgraphs_own_saver(env: Env, durability: Any) -> None:
    async def story(store: Store) -> list[Any]:
        graph = line_graph(store.saver, 2, stop_at=1)
        where = config("t")
        await store.invoke(graph, start("begin"), where, durability=durability)
        await store.invoke(graph, Command(resume="yes"), where, durability=durability)
        return [
            (item.values, item.next, item.metadata["step"], item.metadata["source"])
            for item in await store.state_history(graph, where)
            if "source" in item.metadata
        ]

    assert await story(env.open()) == await story(Store(InMemorySaver(), env.kind, None))
