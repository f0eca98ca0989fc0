"""Public bug reports about the saver as an object: its clones, and the event loops that it meets."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from support.builders import checkpoint, config, metadata, written
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, MONGOMOCK_MOTOR, MOTOR, ON_MONGOD
from support.stores import Store

from docstore_saver import AsyncDocStoreSaver
from docstore_saver.errors import WrongLoopError

MOST_PAUSE = 0.25
"""Seconds that an event loop may do nothing else."""


@dataclass
class Coin:
    """A type that an application allows."""

    side: str


@pytest.mark.parametrize("strict", [False, True])
@scenario
async def test_a_clone_with_an_allowlist_shares_the_storage(env: Env, strict: bool) -> None:
    """with_allowlist answers a saver on the same data, not an empty one (langgraph #7695, CVE-2026-28277)."""
    # A serializer that allows everything is not cloned; one that allows only safe types is.
    store = env.open(**({"serde": JsonPlusSerializer(allowed_msgpack_modules=None)} if strict else {}))
    assert await store.get(config()) is None  # what a saver prepares at its first use must not stick to its clones
    clone = store.over(store.saver.with_allowlist([(__name__, "Coin")]))
    assert (clone.saver is not store.saver) is strict
    at = await clone.put(config(), checkpoint(0, {"coin": Coin("heads"), "n": 1}), metadata())
    assert (await clone.get(at)).checkpoint["channel_values"] == {"coin": Coin("heads"), "n": 1}
    own = (await store.get(at)).checkpoint["channel_values"]
    assert own["n"] == 1
    assert (own["coin"] == Coin("heads")) is not strict
    await store.put_writes(at, [("n", 2)], "task")
    await clone.put_writes(at, [("n", 3)], "other task")
    for saver in (store, clone):
        assert written(await saver.get(at)) == [3, 2]
        assert len(await saver.list(config())) == 1
    await clone.delete_thread("t")
    assert await store.get(config()) is None


async def longest_pause(work: Coroutine[Any, Any, None]) -> tuple[float, float]:
    """Seconds for which the event loop did nothing but the work, and those that the work took."""
    task = asyncio.create_task(work)
    first = last = time.perf_counter()
    longest = 0.0
    while not task.done():
        await asyncio.sleep(0.005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    await task
    return longest, last - first


@pytest.mark.kinds(*ON_MONGOD)
def test_listing_leaves_the_event_loop_free(env: Env) -> None:
    """alist of many checkpoints lets other tasks run meanwhile, on a sync client too (langchain-aws #754, #1072)."""

    async def body() -> None:
        store = env.open()
        # Long to decode, at every checkpoint, and quickly stored: a child refers to its parent's values.
        state = {"small": {str(n): n for n in range(900)}, "large": [{"word": str(n)} for n in range(6000)]}
        at = config()
        for n in range(250):
            new = checkpoint(n, {**state, "x": n}, {"small": 1, "large": 1, "x": n + 1})
            at = await store.put(at, new, metadata(n), new["channel_versions"] if n == 0 else {"x": n + 1})

        async def read() -> None:
            # Not kept: the garbage collector's look at all of them would be a pause of its own.
            found = [item.metadata["step"] async for item in store.saver.alist(config())]
            assert found == list(reversed(range(250)))

        # A busy machine may hold one reading up; a loop that is blocked is blocked every time.
        pauses = [await longest_pause(read())]
        while not short(*pauses[-1]) and len(pauses) < 4:
            pauses.append(await longest_pause(read()))
        assert short(*pauses[-1]), pauses

    env.run(body, in_loop=True)


def short(longest: float, whole: float) -> bool:
    return longest < min(MOST_PAUSE, whole / 3)


TWO_LOOPS = pytest.mark.kinds(ASYNC_PYMONGO, MOTOR, MONGOMOCK_MOTOR)
# A client whose loop is closed cannot be closed itself, and the driver complains of it.
LOST_CLIENTS = pytest.mark.filterwarnings("ignore::ResourceWarning")


async def opened(env: Env) -> Store:
    store = env.open()
    await store.put(config(), checkpoint(0, {"x": 1}), metadata())
    return store


async def read(store: Store) -> None:
    item = await asyncio.wait_for(store.get(config()), 20)
    assert item.checkpoint["channel_values"] == {"x": 1}


def read_or_told(run: Callable[[Coroutine[Any, Any, None]], None], store: Store) -> None:
    """The embedded store is of no loop; a driver's client is of one, which the error names."""
    if store.kind.needs_server:
        with pytest.raises(WrongLoopError, match="belongs to a different event loop"):
            run(read(store))
    else:
        run(read(store))


@TWO_LOOPS
def test_a_second_event_loop_is_told_of_the_first(env: Env) -> None:
    """Two loops side by side: the second is refused and harms nothing (mongo-python-driver #2256)."""
    with asyncio.Runner() as first, asyncio.Runner() as second:
        store = first.run(opened(env))
        read_or_told(second.run, store)
        first.run(read(store))
        first.run(env._close())


@LOST_CLIENTS
@TWO_LOOPS
def test_a_loop_behind_a_closed_one_is_told_so(env: Env) -> None:
    """A client of a closed loop is not answered with "Event loop is closed" (agno #5362, mongo-python-driver #2256)."""
    store = asyncio.run(opened(env))
    read_or_told(asyncio.run, store)
    del store
    env._clients.clear()
    gc.collect()  # here, where the complaints are not errors


@LOST_CLIENTS
@pytest.mark.kinds(ASYNC_PYMONGO)
def test_a_saver_with_its_own_client_works_in_every_event_loop(env: Env) -> None:
    """asyncio.run around each call is enough where the saver makes its clients itself (vibetuner #1575)."""
    saver = AsyncDocStoreSaver.from_conn_string(env.uri, env.database)
    new = checkpoint(0, {"x": 1})
    asyncio.run(saver.aput(config(), new, metadata(), new["channel_versions"]))
    store = Store(saver, env.kind, None)
    for _ in range(3):
        asyncio.run(read(store))
    del saver, store
    gc.collect()
