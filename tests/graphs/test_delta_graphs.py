"""Graphs with delta channels: a new saver restores exactly what the graph held while it ran.

A delta channel is not stored but rebuilt from the writes of its ancestors, so a lost, doubled or misplaced write shows
only in what a reload answers. The live values come from LangGraph's own "checkpoints" stream.
"""

from __future__ import annotations

import asyncio
import functools
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
from support.fresh import fresh
from support.kinds import ASYNC_PYMONGO, ON_MONGOD, PYMONGO
from support.stores import Store

NEVER = 1000
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


def fan_graph(saver: Any) -> Any:
    """4 nodes side by side, which end in a random order, all writing one channel."""

    def writer(name: str) -> Callable[[FanState], FanState]:
        def write(state: FanState) -> FanState:
            time.sleep(random.random() * 0.002)
            return {"log": [f"{name} after {len(state['log'])}"]}

        return write

    graph = StateGraph(FanState)
    for name in [*WRITERS, "last"]:
        graph.add_node(name, writer(name))
    for name in WRITERS:
        graph.add_edge(START, name)
    graph.add_edge(WRITERS, "last")
    return graph.compile(checkpointer=saver)


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_parallel_writers_restore_the_live_value_in_every_thread(env: Env) -> None:
    store, count = env.open(), THREADS[env.kind.name]
    graph = fan_graph(store.saver)

    async def run(n: int) -> Any:
        live = await store.invoke(graph, {"log": ["start"]}, config(f"t{n}"))
        assert sorted(live["log"]) == [*(f"{name} after 1" for name in WRITERS), "last after 5", "start"]
        return live

    live = await in_groups(store, [run(n) for n in range(count)])
    fresh = env.open()
    again = fan_graph(fresh.saver)
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


@functools.cache
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


def one_by_one(where: Any) -> Any:
    """LangGraph may lose a delta write under exit durability where two nodes end in two threads at the same moment.

    Its `put_writes` replaces the list that the other thread is about to extend. InMemorySaver shows it, too.
    """
    return {**where, "max_concurrency": 1}


class Told:
    """A thread's life, told by every checkpoint that was emitted: id -> the values that the graph held then."""

    def __init__(self, env: Env, frequency: int, durability: Any) -> None:
        self.env, self.frequency, self.durability = env, frequency, durability
        self.live: dict[str, Any] = {}
        self.first = env.open(inline_limit=64)

    def graph(self, stop_at: int = -1) -> tuple[Store, Any]:
        """A new saver, which knows nothing of what others did; it shares no more than the client with them."""
        store = fresh(self.env, self.first)
        return store, line_graph(store.saver, self.frequency, stop_at)

    async def run(self, value: Any, where: Any, stop_at: int = -1) -> dict[str, Any]:
        """One run by a saver of its own, as in another process; answers the values at its end."""
        store, graph = self.graph(stop_at)
        options: Any = {"stream_mode": ["checkpoints", "values"], "durability": self.durability}
        where = one_by_one(where) if self.durability == "exit" else where
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
        store, graph = self.graph()
        made = await store.update(graph, where, values, as_node="left")
        self.live[made["configurable"]["checkpoint_id"]] = expected
        return made

    async def history(self, where: Any) -> list[Any]:
        store, graph = self.graph()
        return await store.state_history(graph, where)

    async def check(self, where: Any, head: dict[str, Any]) -> None:
        """A new saver answers the head as it was."""
        store, graph = self.graph()
        assert (await store.state(graph, where)).values == head

    async def check_all(self, where: Any, head: dict[str, Any]) -> None:
        """And so it does every line of the history, and some of the checkpoints by their ids."""
        await self.check(where, head)
        # An exit durability's stub (step -2) is no step of the graph.
        found = [item for item in await self.history(where) if item.metadata["step"] != -2]
        assert found
        for item in found:
            assert visible(item.values) == visible(self.live[item.config["configurable"]["checkpoint_id"]])
        for item in found[:: max(1, len(found) // 4)]:
            await self.check(item.config, item.values)


def visible(values: Any) -> dict[str, Any]:
    """A delta channel that nothing was written to is restored as empty, and not told at all while it runs."""
    return {name: value for name, value in values.items() if value != []}


def frequencies(env: Env, durability: str = "sync") -> list[int]:
    """Each gets a thread of its own. One is enough where only the driver is another, not the saver's code."""
    if env.kind not in (PYMONGO, ASYNC_PYMONGO):
        return [3]
    return {"sync": [3, NEVER], "async": [1, NEVER], "exit": [1, 3, NEVER]}[durability]


@pytest.mark.parametrize("durability", DURABILITIES)
@scenario
async def test_a_thread_that_resumes_and_goes_on(env: Env, durability: Any) -> None:
    for frequency in frequencies(env, durability):
        told, where = Told(env, frequency, durability), config(f"t{frequency}")
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
        await told.check_all(where, longer)


@pytest.mark.parametrize("durability", DURABILITIES)
@scenario
async def test_a_fork_from_an_older_checkpoint_keeps_both_branches(env: Env, durability: Any) -> None:
    for frequency in frequencies(env, durability):
        told, where = Told(env, frequency, durability), config(f"t{frequency}")
        await told.run(start("begin"), where)
        first = await told.run({"log": ["second"], "plain": ["second"]}, where)
        history = await told.history(where)
        older = history[len(history) // 2]
        forked = await told.run({"log": ["fork"], "plain": ["fork"]}, older.config)
        assert forked["log"] == forked["plain"]
        assert forked["log"][: len(older.values["log"])] == older.values["log"]
        await told.check(where, forked)
        again = await told.run({"log": ["twig"], "plain": ["twig"]}, history[0].config)
        assert again["log"][: len(first["log"])] == first["log"]
        await told.check_all(where, again)


@scenario
async def test_update_state_forks(env: Env) -> None:
    for frequency in frequencies(env):
        told, where = Told(env, frequency, "sync"), config(f"t{frequency}")
        await told.run(start("begin"), where)
        history = await told.history(where)
        for older in (history[0], history[-2]):
            values = {**older.values, "notes": older.values.get("notes", [])}
            expected = plus(values, "edit")
            made = await told.update(older.config, {"log": ["edit"], "plain": ["edit"]}, expected)
            await told.check(where, expected)
            noted = {**expected, "notes": [*values["notes"], "edit"]}
            once_more = await told.update(made, {"notes": ["edit"]}, noted)
            gone_on = await told.run({"log": ["go"], "plain": ["go"], "count": 0}, once_more)
            assert gone_on["log"][: len(expected["log"])] == expected["log"]
            assert gone_on["log"] == gone_on["plain"]
        await told.check_all(where, gone_on)


def plus(values: dict[str, Any], word: str) -> dict[str, Any]:
    return {**values, "log": [*values["log"], word], "plain": [*values["plain"], word]}


@scenario
async def test_an_overwrite_resets_a_delta_channel(env: Env) -> None:
    for frequency in frequencies(env):
        told, where = Told(env, frequency, "async"), config(f"t{frequency}")
        head = await told.run(start("begin"), where)
        emptied = {**head, "log": ["reset"]}
        await told.update(where, {"log": Overwrite(["reset"])}, emptied)
        await told.check(where, emptied)
        gone_on = await told.run({"log": ["go"], "count": 0}, where)
        assert gone_on["log"][:2] == ["reset", "go"]
        await told.check_all(where, gone_on)


@pytest.mark.parametrize("durability", DURABILITIES)
@scenario
async def test_histories_agree_with_langgraphs_own_saver(env: Env, durability: Any) -> None:
    async def story(store: Store) -> list[Any]:
        graph = line_graph(store.saver, 2, stop_at=1)
        where = one_by_one(config("t"))
        await store.invoke(graph, start("begin"), where, durability=durability)
        await store.invoke(graph, Command(resume="yes"), where, durability=durability)
        return [
            (item.values, item.next, item.metadata["step"], item.metadata["source"])
            for item in await store.state_history(graph, where)
            if "source" in item.metadata
        ]

    assert await story(env.open()) == await story(Store(InMemorySaver(), env.kind, None))
