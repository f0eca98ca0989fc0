"""Time to live: a thread's documents share one age; it goes, stays and comes back whole (docs/format.md, section 7).

Time passes by making documents older in the database; only the last test waits for a server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from support.builders import checkpoint, checkpoint_id, config, ids, metadata, threads
from support.commands import Commands
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, PYMONGO
from support.made import over_client
from support.stores import Store

from docstore_saver import DocStoreSaver
from docstore_saver.devserver import DevServer
from docstore_saver.errors import ThreadExpiredError
from docstore_saver.plans import heads
from docstore_saver.state import Ttl

pytestmark = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO)

TTL = 10_000_000
STEP = timedelta(seconds=TTL // 10)
GRACE = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # as BSON has it
LARGE = "y" * 20_000
LIFT = ["update values", "update writes", "update checkpoints"]
COLLECTIONS = ("docstore_checkpoints", "docstore_writes", "docstore_values")


def now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def ages(env: Env, thread: str = "t") -> list[datetime | None]:
    """The different stamps of a thread's documents."""
    found = {doc["active_at"] for name in COLLECTIONS for doc in env.raw[name].find({"thread_id": thread})}
    return sorted(found, key=str)


def make_old(env: Env, age: timedelta, thread: str = "t") -> None:
    """Let the time since the thread's last put be `age`."""
    stamp = now() - age
    for name in COLLECTIONS:
        env.raw[name].update_many({"thread_id": thread}, {"$set": {"active_at": stamp}})


def over(more: timedelta) -> timedelta:
    return timedelta(seconds=TTL) + more


async def whole_thread(store: Store, thread: str = "t") -> list[dict[str, Any]]:
    """Two checkpoints, a value of its own that both refer to, and writes; answers the configs."""
    versions = {"large": 1, "x": 1}
    first = await store.put(config(thread), checkpoint(0, {"large": LARGE, "x": 0}, versions))
    second = await store.put(first, checkpoint(1, {"large": LARGE, "x": 1}, {"large": 1, "x": 2}), None, {"x": 2})
    await store.put_writes(second, [("x", 2), ("y", LARGE)], "task")
    return [first, second]


async def put_child(store: Store, parent: Any, n: int = 2) -> Any:
    """A child that inherits the large value."""
    return await store.put(parent, checkpoint(n, {"x": n}, {"large": 1, "x": n + 1}), metadata(n), {"x": n + 1})


async def visible(store: Store, thread: str = "t") -> list[str]:
    """The thread's checkpoints as list has them, after a look that get_tuple and a list of all agree."""
    listed = ids(await store.list(config(thread)))
    found = await store.get(config(thread))
    assert (ids([found]) if found else []) == listed[:1]
    assert ids([item for item in await store.list(None) if threads([item]) == [thread]]) == listed
    return listed


def test_steps_and_grace() -> None:
    assert [Ttl(seconds).grace for seconds in (1, 3600, 3601, TTL)] == [1, 3600, 3600, 3600]
    assert [Ttl(seconds).expire_after_seconds for seconds in (1, 5, 100, TTL)] == [3, 11, 210, TTL + 1_000_000 + 3600]
    on_grid = EPOCH + 7 * STEP
    assert Ttl(TTL).stamp(on_grid) == on_grid
    assert Ttl(TTL).stamp(on_grid + timedelta(milliseconds=1)) == on_grid + STEP
    for given, seconds in ((0.2, 1), (1.5, 2), (timedelta(minutes=1), 60), (7, 7)):
        options = DocStoreSaver.in_memory(ttl=given)._options
        assert options.ttl == Ttl(seconds)


@scenario
async def test_one_stamp_for_all_documents_of_a_thread(env: Env) -> None:
    store = env.open(ttl=TTL)
    before = now()
    await whole_thread(store)
    (stamp,) = ages(env)
    assert stamp is not None
    assert before <= stamp <= before + STEP + timedelta(seconds=60)
    assert (stamp - EPOCH) % STEP == timedelta(0)
    assert [env.raw[name].count_documents({"thread_id": "t"}) for name in COLLECTIONS] == [2, 2, 2]


@scenario
async def test_the_first_put_in_a_step_lifts_the_thread(env: Env) -> None:
    """Three commands more, values first; then none for the rest of the step, and none at all for writes."""
    first = env.open(ttl=TTL)
    await whole_thread(first)
    await whole_thread(first, "another")
    make_old(env, 2 * STEP)
    make_old(env, 2 * STEP, "another")
    (old,) = ages(env, "another")
    store = env.open(ttl=TTL)
    head = (await store.get(config())).config
    with env.commands.count() as sent:
        await store.put_writes(head, [("x", 1)], "another task")
    assert Commands.names(sent) == ["insert writes"]
    with env.commands.count() as sent:
        head = await store.put(head, checkpoint(2, {"x": 2}))
    assert Commands.names(sent) == [*LIFT, "insert checkpoints"]
    assert len(ages(env)) == 1
    for n in (3, 4):
        with env.commands.count() as sent:
            head = await store.put(head, checkpoint(n, {"x": n}))
        assert Commands.names(sent) == ["insert checkpoints"]
    assert ages(env, "another") == [old]


@scenario
async def test_a_lift_names_its_thread_and_bounds_the_age(env: Env) -> None:
    store = env.open(ttl=TTL)
    with env.commands.count() as sent:
        await store.put(config(), checkpoint(0))
    lifts = [body["updates"][0]["q"] for name, body in sent if name == "update" and "$gt" in str(body)]
    assert len(lifts) == 3
    for query in lifts:
        assert (query["tenant"], query["thread_id"]) == ("", "t")
        assert set(query["$or"][1]["active_at"]) == {"$gt", "$lt"}


@scenario
async def test_an_expired_thread_is_gone(env: Env) -> None:
    """All of it, for every reader, though the server has not removed it yet."""
    writer = env.open(ttl=TTL)
    stored = await whole_thread(writer)
    await whole_thread(writer, "alive")
    make_old(env, over(timedelta(seconds=1)))
    for store in (writer, env.open(ttl=TTL), env.open()):
        assert await visible(store) == []
        assert [await store.get(where) for where in stored] == [None, None]
        assert await store.list(config(), filter={"step": 0}) == []
        assert threads(await store.list(None)) == ["alive", "alive"]
        # Not an empty page instead of the next one.
        assert threads(await store.list(None, limit=1)) == ["alive"]
    assert env.raw["docstore_checkpoints"].count_documents({"thread_id": "t"}) == 2


@scenario
async def test_a_thread_lives_to_its_last_moment(env: Env) -> None:
    store = env.open(ttl=TTL)
    await whole_thread(store)
    make_old(env, over(timedelta(seconds=-30)))
    assert len(await visible(store)) == 2


@scenario
async def test_a_new_start_does_not_bring_the_old_thread_back(env: Env) -> None:
    writer = env.open(ttl=TTL)
    await whole_thread(writer)
    for age in (timedelta(seconds=1), GRACE / 2, GRACE * 2):
        make_old(env, over(age))
        (old,) = ages(env)
        store = env.open(ttl=TTL)
        await store.put(config(), checkpoint(9, {"x": 9}))
        assert await visible(store) == [checkpoint_id(9)]
        assert env.raw["docstore_values"].distinct("active_at", {"thread_id": "t"}) == [old]
        assert await store.get(config(id=checkpoint_id(1))) is None


@scenario
async def test_a_put_within_grace_brings_the_thread_back_whole(env: Env) -> None:
    """A run that loaded its thread in time may store its end a little later."""
    stored = await whole_thread(env.open(ttl=TTL))
    make_old(env, over(GRACE / 2))
    store = env.open(ttl=TTL)
    assert await visible(store) == []
    await put_child(store, stored[-1])
    assert await visible(store) == [checkpoint_id(n) for n in (2, 1, 0)]
    assert len(ages(env)) == 1
    found = await store.get(stored[-1])
    assert found.checkpoint["channel_values"] == {"large": LARGE, "x": 1}
    assert found.pending_writes == [("task", "x", 2), ("task", "y", LARGE)]
    assert (await store.get(config())).checkpoint["channel_values"] == {"large": LARGE, "x": 2}


@pytest.mark.parametrize("end", ["old", "removed"])
@scenario
async def test_a_run_that_outlived_its_thread(env: Env, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Its checkpoint would have lost what it was to inherit, so it is not stored."""
    store = env.open(ttl=TTL)
    stored = await whole_thread(store)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2 * GRACE.total_seconds())
    if end == "old":
        make_old(env, over(GRACE + timedelta(seconds=1)))
    else:
        for name in COLLECTIONS:
            env.raw[name].delete_many({"thread_id": "t"})
    monkeypatch.setattr(heads, "time", later)
    before = env.raw_bytes()
    with pytest.raises(ThreadExpiredError, match="not stored"):
        await put_child(store, stored[-1])
    assert env.raw_bytes() == before
    await store.put(config(), checkpoint(9, {"x": 9}))  # starting anew works
    assert await visible(store) == [checkpoint_id(9)]


@scenario
async def test_a_long_run_on_a_living_thread(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for its parent once more, and goes on."""
    store = env.open(ttl=TTL)
    stored = await whole_thread(store)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2 * GRACE.total_seconds())
    monkeypatch.setattr(heads, "time", later)
    with env.commands.count() as sent:
        await put_child(store, stored[-1])
    assert Commands.names(sent) == ["find checkpoints", "insert checkpoints"]
    assert (await store.get(config())).checkpoint["channel_values"] == {"large": LARGE, "x": 2}


@scenario
async def test_a_deleted_thread_starts_anew(env: Env) -> None:
    """Nothing is remembered of the stamps of the one that was deleted."""
    store = env.open(ttl=TTL)
    await whole_thread(store)
    await store.delete_thread("t")
    await whole_thread(store)
    assert len(await visible(store)) == 2
    assert len(ages(env)) == 1


def _left(raw: Any, thread: str) -> Mapping[str, int]:
    return {name: raw[name].count_documents({"thread_id": thread}) for name in COLLECTIONS}


@pytest.mark.kinds(PYMONGO)
@pytest.mark.skipif("DOCSTORE_TEST_URI" in os.environ, reason="needs a mongod whose TTL monitor runs every second")
@scenario
async def test_the_server_removes_what_is_over(env: Env) -> None:
    """After ttl, a step and grace: three seconds here. Readers do not wait for that; what is in use stays whole."""
    with DevServer(arguments=["--setParameter", "ttlMonitorSleepSecs=1"]) as server:
        # Closed before its server is gone, which it would look for.
        async with over_client(env, {"database": env.database, "ttl": 1}, server.uri) as store:
            raw = store.client[env.database]
            await whole_thread(store)
            head = (await whole_thread(store, "busy"))[-1]
            gone_at, started, n = 0.0, time.monotonic(), 2
            while any(_left(raw, "t").values()):
                assert time.monotonic() - started < 20
                if await store.get(config()) is None:
                    gone_at = gone_at or time.monotonic() - started
                head = await put_child(store, head, n)
                n += 1
                time.sleep(0.2)  # noqa: ASYNC251  # a sync client: no loop runs here
            assert 0.5 < gone_at < 2.8
            assert time.monotonic() - started > 2.5
            assert (await store.get(config("busy"))).checkpoint["channel_values"] == {"large": LARGE, "x": n - 1}
            assert len(await store.list(config("busy"))) == n
