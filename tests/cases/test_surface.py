"""Public bug reports about the saver as an object: its clones, and the event loops that it meets."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from support.builders import chain, checkpoint, config, metadata, written
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, MONGOMOCK_MOTOR, MOTOR, ON_MONGOD

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


async def longest_pause(work: Coroutine[Any, Any, Any]) -> float:
    """Seconds for which the event loop did nothing but the work."""
    task = asyncio.create_task(work)  # type: ignore[var-annotated]  # whatever it answers
    longest, last = 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(0.005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    await task
    return longest


@pytest.mark.kinds(*ON_MONGOD)
def test_listing_leaves_the_event_loop_free(env: Env) -> None:
    """alist of many checkpoints lets other tasks run meanwhile, on a sync client too (langchain-aws #754, #1072)."""

    async def body() -> None:
        store = env.open()
        await chain(store, 250, values=lambda n: {"x": "v" * 2500})

        async def read() -> None:
            assert len([item async for item in store.saver.alist(config())]) == 250

        # A busy machine may hold one reading up; a loop that is blocked is blocked every time.
        pauses = [await longest_pause(read())]
        while pauses[-1] >= MOST_PAUSE and len(pauses) < 4:
            pauses.append(await longest_pause(read()))
        assert pauses[-1] < MOST_PAUSE, pauses

    env.run(body, in_loop=True)


@pytest.mark.kinds(ASYNC_PYMONGO, MOTOR, MONGOMOCK_MOTOR)
def test_a_second_event_loop_is_served_or_told(env: Env) -> None:
    """A client of another loop is named, not "Event loop is closed" (mongo-python-driver #2256, agno #5362)."""
    first, second = asyncio.Runner(), asyncio.Runner()
    with first, second:
        store = first.run(opened(env))
        if env.kind.needs_server:
            with pytest.raises(WrongLoopError, match="belongs to a different event loop"):
                second.run(store.get(config()))
        else:
            assert second.run(store.get(config())).checkpoint["channel_values"] == {"x": 1}
        # The first loop's saver has taken no harm.
        assert first.run(store.get(config())).checkpoint["channel_values"] == {"x": 1}
        first.run(env._close())


async def opened(env: Env) -> Any:
    store = env.open()
    await store.put(config(), checkpoint(0, {"x": 1}), metadata())
    return store


# asyncio.run leaves a saver no time to close the client of its loop, and the driver complains of it.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.kinds(ASYNC_PYMONGO)
def test_a_saver_with_its_own_client_works_in_every_event_loop(env: Env) -> None:
    """asyncio.run around each call is enough where the saver makes its clients itself (vibetuner #1575)."""
    saver = AsyncDocStoreSaver.from_conn_string(env.uri, env.database)
    new = checkpoint(0, {"x": 1})
    at = asyncio.run(saver.aput(config(), new, metadata(), new["channel_versions"]))
    for _ in range(3):
        found = asyncio.run(saver.aget_tuple(at))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"x": 1}
    del saver
    gc.collect()  # here, where the complaints are not errors
