"""Async graphs: many threads at once on one saver, runs cancelled at any moment, savers made outside a loop."""

from __future__ import annotations

import asyncio
import gc
import operator
import time
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import pymongo
import pytest
from langgraph.graph import END, START, StateGraph
from support.builders import config
from support.env import Env, scenario
from support.fresh import fresh
from support.kinds import ASYNC_PYMONGO, MONGOMOCK_MOTOR, MOTOR, PYMONGO
from support.stores import Store

from docstore_saver import AsyncDocStoreSaver

NODES = ["one", "two", "last"]
DURABILITIES: list[Any] = ["sync", "async", "exit"]

on_async_kinds = pytest.mark.kinds(ASYNC_PYMONGO, MOTOR, MONGOMOCK_MOTOR)

# AsyncMongoClient leaves a socket open when it is cancelled while it connects.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def sockets() -> Iterator[None]:
    """They go here, and not in another module's test."""
    yield
    gc.collect()


class State(TypedDict):
    name: str
    log: Annotated[list[str], operator.add]
    large: str


class Pause:
    """Holds one node of a graph until it may go on."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.reached, self.over = asyncio.Event(), asyncio.Event()

    async def at(self, node: str) -> None:
        if node == self.node:
            self.reached.set()
            await self.over.wait()


def build(saver: Any, pause: Pause | None = None) -> Any:
    """A node, two side by side, and a last one that ends the run."""

    def node(name: str) -> Any:
        async def run(state: State) -> Any:
            if pause is not None:
                await pause.at(name)
            return {"log": [f"{name} of {state['name']}"], "large": f"{name} of {state['name']} " * 20}

        return run

    async def beside(state: State) -> Any:
        return {"log": [f"beside of {state['name']}"]}

    graph = StateGraph(State)
    for name in NODES:
        graph.add_node(name, node(name))
    graph.add_node("beside", beside)
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    graph.add_edge("one", "beside")
    graph.add_edge("two", "last")
    graph.add_edge("last", END)
    return graph.compile(checkpointer=saver)


def begin(name: str) -> dict[str, Any]:
    return {"name": name, "log": [name]}


def ended(name: str) -> dict[str, Any]:
    log = [name, *(f"{node} of {name}" for node in ("one", "beside", "two", "last"))]
    return {"name": name, "log": log, "large": f"last of {name} " * 20}


# Many at once.


@on_async_kinds
@scenario
async def test_200_threads_at_once_on_one_saver(env: Env) -> None:
    names = [f"t{n}" for n in range({ASYNC_PYMONGO: 200, MOTOR: 60, MONGOMOCK_MOTOR: 20}[env.kind])]
    store = env.open(inline_limit=64)
    graph = build(store.saver)
    answers = await asyncio.gather(*(store.invoke(graph, begin(name), config(name)) for name in names))
    assert answers == [ended(name) for name in names]
    reader = fresh(env, store)
    again = build(reader.saver)
    states = await asyncio.gather(*(reader.state(again, config(name)) for name in names))
    assert [state.values for state in states] == answers
    for name in names[::40]:
        history = await reader.state_history(again, config(name))
        assert [item.metadata["step"] for item in history] == [3, 2, 1, 0, -1]


# Cancelled runs.


async def stop(run: asyncio.Task[Any]) -> None:
    """Cancel it and wait for its end. One that was about to end anyway may do so without the error."""
    run.cancel()
    answer = (await asyncio.gather(run, return_exceptions=True))[0]
    assert isinstance(answer, asyncio.CancelledError | dict)


async def cancel(run: asyncio.Task[Any], around: set[asyncio.Task[Any]]) -> None:
    """The same, and wait for what LangGraph leaves behind: who begins a thread anew before that has begun it twice."""
    await stop(run)
    left = asyncio.all_tasks() - around
    if left:
        await asyncio.wait(left, timeout=0.5)
    await asyncio.sleep(0.03)


async def resume(env: Env, store: Store, name: str) -> Any:
    """What a caller does after a crash: go on where the thread is, or begin it."""
    other = fresh(env, store)
    graph = build(other.saver)
    begun = (await other.state(graph, config(name))).created_at is not None
    return await other.invoke(graph, None if begun else begin(name), config(name))


async def check_ended(env: Env, store: Store, name: str) -> None:
    other = fresh(env, store)
    state = await other.state(build(other.saver), config(name))
    assert state.values == ended(name)
    assert state.next == ()


@on_async_kinds
@pytest.mark.parametrize("durability", DURABILITIES)
@scenario
async def test_cancelled_while_a_node_sleeps(env: Env, durability: Any) -> None:
    store = env.open(inline_limit=64)
    for node in NODES:
        pause, around = Pause(node), asyncio.all_tasks()
        graph = build(store.saver, pause)
        run = asyncio.create_task(store.invoke(graph, begin(node), config(node), durability=durability))
        await pause.reached.wait()
        await asyncio.sleep(0.01)
        await cancel(run, around)
        assert await resume(env, store, node) == ended(node)
        await check_ended(env, store, node)


@on_async_kinds
@pytest.mark.parametrize("durability", DURABILITIES)
@scenario
async def test_cancelled_at_any_moment(env: Env, durability: Any) -> None:
    store = env.open(inline_limit=64)
    graph = build(store.saver)
    await store.invoke(graph, begin("warm"), config("warm"), durability=durability)
    began = time.perf_counter()
    await store.invoke(graph, begin("whole"), config("whole"), durability=durability)
    whole = time.perf_counter() - began
    moments = 12 if env.kind.needs_server else 4
    for n in range(moments):
        name, around = f"t{n}", asyncio.all_tasks()
        run = asyncio.create_task(store.invoke(graph, begin(name), config(name), durability=durability))
        await asyncio.sleep(whole * n / moments)
        await cancel(run, around)
        await resume(env, store, name)
        await check_ended(env, store, name)


@pytest.fixture
def slow_server(env: Env) -> Iterator[Any]:
    """Makes the server hold the next insert into a collection."""
    admin = env.raw.client.admin

    def hold(collection: str, milliseconds: int) -> None:
        namespace = f"{env.database}.docstore_{collection}"
        data = {
            "failCommands": ["insert"],
            "blockConnection": True,
            "blockTimeMS": milliseconds,
            "namespace": namespace,
        }
        admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)

    yield hold
    admin.command("configureFailPoint", "failCommand", mode="off")


async def at_a_slow_put(env: Env, store: Store, name: str, hold: Any, **options: Any) -> asyncio.Task[Any]:
    """A run whose next insert the server holds, while everything before is stored."""
    pause, other = Pause("two"), fresh(env, store)
    run = asyncio.create_task(build(store.saver, pause).ainvoke(begin(name), config(name), **options))
    await pause.reached.wait()
    while "two" not in (await build(other.saver).aget_state(config(name))).next:  # noqa: ASYNC110  # the store has no event
        await asyncio.sleep(0.01)
    hold()
    pause.over.set()
    await asyncio.sleep(0.1)
    return run


async def check_resumes(env: Env, store: Store, name: str) -> None:
    assert await build(fresh(env, store).saver).ainvoke(None, config(name)) == ended(name)
    # What was under way has arrived by now, and changes nothing.
    await asyncio.sleep(0.15)
    state = await build(fresh(env, store).saver).aget_state(config(name))
    assert (state.values, state.next) == (ended(name), ())


@pytest.mark.kinds(ASYNC_PYMONGO, MOTOR, PYMONGO)
@pytest.mark.parametrize("collection", ["checkpoints", "values", "writes"])
def test_cancelled_while_a_put_is_under_way(env: Env, collection: str, slow_server: Any) -> None:
    """A sync saver's thread cannot be cancelled: its put arrives while the next run has begun."""

    async def body() -> None:
        store = env.open(inline_limit=64)
        await store.saver.asetup()
        for durability in ("sync", "async"):
            name = f"t-{durability}"
            run = await at_a_slow_put(env, store, name, lambda: slow_server(collection, 200), durability=durability)
            await stop(run)
            await check_resumes(env, store, name)

    env.run(body, in_loop=True)


# Savers made outside a loop.


@pytest.fixture
def database(raw_client: pymongo.MongoClient[Any]) -> Iterator[str]:
    name = f"docstore_test_{uuid.uuid4().hex[:16]}"
    yield name
    raw_client.drop_database(name)


def test_a_saver_made_outside_a_loop_and_never_entered(mongod_uri: str, database: str) -> None:
    saver = AsyncDocStoreSaver.from_conn_string(mongod_uri, database)
    graph = build(saver)

    async def main() -> Any:
        answer = await graph.ainvoke(begin("t"), config())
        await saver.aclose()
        return answer

    assert asyncio.run(main()) == ended("t")


def test_an_embedded_saver_made_outside_a_loop() -> None:
    graph = build(AsyncDocStoreSaver.in_memory())
    assert asyncio.run(graph.ainvoke(begin("t"), config())) == ended("t")
    assert asyncio.run(graph.aget_state(config())).values == ended("t")
