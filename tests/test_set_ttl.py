"""set_ttl on a store that is in use: changed, switched on over existing data, off (docs/format.md, section 7)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.errors import OperationFailure
from support.builders import chain, checkpoint, checkpoint_id, config, ids, metadata, whole_thread
from support.env import Env, scenario
from support.expiring import LARGE, OVER, TTL, age, fill, indexes, raw, stamps, ttl_of, without_indexes
from support.interleave import Stepper, runner_for
from support.kinds import ASYNC_PYMONGO, EMBEDDED, MONGOMOCK, PYMONGO
from support.made import over_client
from support.maintained import stored

from docstore_saver import runners
from docstore_saver.calls import COLLECTIONS, Call
from docstore_saver.devserver import DevServer
from docstore_saver.documents import now
from docstore_saver.plans import ttl
from docstore_saver.state import ASK_AGAIN, Ttl

pytestmark = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, *EMBEDDED)

STEPPED = (PYMONGO, MONGOMOCK)


@pytest.mark.parametrize("new", [TTL // 2, TTL * 2, timedelta(days=30), TTL])
@scenario
async def test_a_change_of_the_ttl(env: Env, new: Any) -> None:
    store = env.open(ttl=TTL)
    await fill(store, "t")
    before = stored(env)
    await store.call("set_ttl", new)
    seconds = int(new.total_seconds()) if isinstance(new, timedelta) else new
    assert (indexes(env), ttl_of(env)) == ([Ttl(seconds).expire_after_seconds] * 3, seconds)
    assert stored(env) == before
    assert store.saver._state.ttl == Ttl(seconds)
    assert (await store.call("stats")).ttl_seconds == seconds
    assert (await env.open(auto_setup=False).call("stats")).ttl_seconds == seconds
    assert len(await store.list(whole_thread())) == 3


@scenario
async def test_a_shorter_ttl_ends_what_is_older(env: Env) -> None:
    """And a longer one keeps it: readers judge by the new one at once."""
    store = env.open(ttl=TTL)
    await fill(store, "t")
    age(env, timedelta(seconds=TTL // 2))
    await store.call("set_ttl", TTL // 2 - 60)
    assert await store.get(config()) is None
    await store.call("set_ttl", TTL)
    assert len(await store.list(whole_thread())) == 3


@scenario
async def test_switching_on_over_existing_data(env: Env) -> None:
    store = env.open()
    await fill(store, "t")
    assert (indexes(env), ttl_of(env), stamps(env)) == ([None] * 3, None, {None})
    await store.call("set_ttl", TTL)
    assert (indexes(env), ttl_of(env)) == ([Ttl(TTL).expire_after_seconds] * 3, TTL)
    (stamp,) = stamps(env)
    assert stamp >= now() - timedelta(minutes=1)
    head = await store.get(config())
    await store.put(head.config, checkpoint(2, {"x": 2}))
    assert stamps(env) == {stamp}


@scenario
async def test_switching_off(env: Env) -> None:
    """Nothing expires any more, also what was over but not removed yet; a second time changes nothing."""
    store = env.open(ttl=TTL)
    await fill(store, "t")
    await fill(store, "over")
    age(env, timedelta(seconds=TTL + 60), thread_id="over")
    for _ in range(2):
        await store.call("set_ttl", None)
        assert (indexes(env), ttl_of(env), stamps(env)) == ([None] * 3, None, {None})
        assert store.saver._state.ttl is None
    assert await store.call("expire") == 0
    for reader in (store, env.open()):
        assert len(await reader.list(whole_thread("over"))) == 3
        assert (await reader.call("stats")).ttl_seconds is None
    await chain(store, 1, "new")
    assert stamps(env) == {None}


@pytest.mark.kinds(*STEPPED)
@pytest.mark.parametrize(
    ("old", "new"), [(None, TTL), (TTL, TTL // 2), (TTL, TTL * 2), (TTL, None)], ids=["on", "shorter", "longer", "off"]
)
@scenario
async def test_a_change_that_was_cut_short(env: Env, old: int | None, new: int | None) -> None:
    """Behind any of its commands: all threads are still there, and a second change, by another process, is whole."""
    commands, end = 0, False
    while not end:
        for name in COLLECTIONS:
            raw(env, name).drop()
        store = env.open(ttl=old)
        await fill(store, "t")
        wanted = await store.list(whole_thread())
        runner = runner_for(store.client, env.database, store.saver._names)
        first = Stepper(store.saver._plan_set_ttl(new), runner)
        for _ in range(commands):
            first.advance()
        end = not first.pending()
        assert first.failure is None
        for reader in (store, env.open(auto_setup=False), env.open()):
            assert await reader.list(whole_thread()) == wanted
        require_values_outlive(env)
        await env.open(auto_setup=False).call("set_ttl", new)
        expected = Ttl(new).expire_after_seconds if new else None
        assert (indexes(env), ttl_of(env)) == ([expected] * 3, new)
        assert len(stamps(env)) == 1
        assert (None in stamps(env)) == (new is None)
        assert await env.open().list(whole_thread()) == wanted
        commands += 1
    assert commands > 5


def require_values_outlive(env: Env) -> None:
    """At no moment does the server remove a value, or a write, before the checkpoint that needs it."""
    ends = []
    for name, seconds in zip(COLLECTIONS, indexes(env), strict=True):
        for document in raw(env, name).find({"thread_id": "t"}):
            active = document["active_at"]
            never = seconds is None or active is None
            ends.append((name, None if never else active + timedelta(seconds=seconds or 0)))
    checkpoints = [end for name, end in ends if name == "checkpoints"]
    others = [end for name, end in ends if name != "checkpoints"]
    for needed in others:
        for checkpoint_end in checkpoints:
            assert needed is None or (checkpoint_end is not None and needed >= checkpoint_end), ends


@scenario
async def test_another_process_follows_within_ten_minutes(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that only puts meets nothing that would tell it, so it asks."""
    assert timedelta(minutes=10) == ASK_AGAIN
    running, store = env.open(ttl=TTL), env.open()
    (at,) = await chain(running, 1)
    for new in (TTL * 2, None, TTL):
        await store.call("set_ttl", new)
        assert running.saver._state.ttl != (Ttl(new) if new else None)
        later(monkeypatch, timedelta(seconds=601))
        n = 1 + int(at["configurable"]["checkpoint_id"][3:8], 16)
        at = await running.put(at, checkpoint(n, {"x": n}))
        assert running.saver._state.ttl == (Ttl(new) if new else None)
        assert len(stamps(env)) == 1
        assert (None in stamps(env)) == (new is None)
        monkeypatch.undo()
        running.saver._state.ttl_read = time.monotonic()


def later(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Let a saver believe that so much time has passed since it last asked."""
    monkeypatch.setattr(ttl, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + by.total_seconds()))


@scenario
async def test_a_reader_follows_within_ten_minutes(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that only reads goes by what it knows, and asks again."""
    reader, store = env.open(ttl=TTL), env.open()
    await reader.call("setup")
    await fill(store, "t")
    age(env, timedelta(seconds=TTL + 60))
    assert await reader.get(config()) is None
    await store.call("set_ttl", 2 * TTL)
    assert await reader.get(config()) is None
    later(monkeypatch, ASK_AGAIN + timedelta(seconds=1))
    assert await reader.get(config()) is not None
    await store.call("set_ttl", TTL)
    later(monkeypatch, 3 * ASK_AGAIN)
    assert await reader.list(whole_thread()) == []


@scenario
async def test_a_list_takes_notice_of_a_ttl(env: Env) -> None:
    """By any of its rows: the newest may be from a process that knew of no ttl."""
    reader, store = env.open(), env.open(ttl=TTL)
    assert await reader.list(config()) == []
    await fill(store, "t")
    age(env, timedelta(seconds=TTL + 60))
    raw(env, "checkpoints").update_one({"checkpoint_id": checkpoint_id(1)}, {"$set": {"active_at": None}})
    assert ids(await reader.list(whole_thread())) == [checkpoint_id(1)]


def switched_on(env: Env, ago: timedelta) -> None:
    raw(env, "values").update_one({"_id": "settings"}, {"$set": {"ttl_since": now() - ago}})


@scenario
async def test_what_a_process_stored_before_it_took_notice(env: Env) -> None:
    """It has no stamp, so no index would remove it; and it is over when a stamp of that time would be."""
    store = await without_indexes(env)
    for name, stamp in (("no stamp", None), ("mixed", now() - OVER), ("alive", now())):
        await fill(store, name)
        raw(env, "checkpoints").update_many({"thread_id": name}, {"$set": {"active_at": stamp}})
    raw(env, "checkpoints").update_one(
        {"thread_id": "mixed", "checkpoint_id": checkpoint_id(1)}, {"$set": {"active_at": None}}
    )
    for name in ("values", "writes"):
        raw(env, name).update_many({"_id": {"$ne": "settings"}}, {"$set": {"active_at": None}})
    for ago, seen in ((TTL, 1), (TTL + 300, 1), (TTL + 660, 0)):
        switched_on(env, timedelta(seconds=ago))
        for name in ("no stamp", "mixed"):
            assert len(await env.open().list(config(name))) == (2 if name == "no stamp" else 1) * seen
            assert (await env.open().get(config(name)) is not None) == bool(seen)
        assert await env.open().call("expire") == 0
    alive = stored(env, thread_id="alive")
    switched_on(env, OVER + ASK_AGAIN - timedelta(minutes=2))
    assert await env.open().call("expire") == 0
    switched_on(env, OVER + ASK_AGAIN)
    assert await env.open().call("expire") == 2
    assert stored(env) == alive
    assert len(await env.open().list(config("alive"))) == 2


@scenario
async def test_a_change_does_not_begin_anew(env: Env) -> None:
    """What has no stamp keeps its age through a change, and loses it when the ttl is switched off and on."""
    store = await without_indexes(env)
    switched_on(env, timedelta(days=30))
    since = raw(env, "values").find_one({"_id": "settings"})["ttl_since"]
    await env.open().call("set_ttl", TTL // 2)
    await env.open(ttl=TTL // 4).call("setup")
    assert raw(env, "values").find_one({"_id": "settings"})["ttl_since"] == since
    await store.call("set_ttl", None)
    assert raw(env, "values").find_one({"_id": "settings"})["ttl_since"] is None
    await store.call("set_ttl", TTL)
    assert raw(env, "values").find_one({"_id": "settings"})["ttl_since"] > now() - timedelta(minutes=1)
    assert store.saver._state.ttl.since > now() - timedelta(minutes=1)


@scenario
async def test_a_stamp_from_before_it_was_switched_off(env: Env) -> None:
    """A process that had not taken notice left it; switching on again must not let half of its thread expire."""
    running, store = env.open(ttl=TTL), env.open()
    (at,) = await chain(running, 1, values=lambda n: {"large": LARGE})
    await store.call("set_ttl", None)
    await running.put(at, checkpoint(1, {"large": LARGE}, {"large": 1}), metadata(1), {})
    assert len(stamps(env)) == 2
    age(env, OVER, active_at={"$ne": None})
    await store.call("set_ttl", TTL)
    assert len(stamps(env)) == 1
    assert len(await env.open().list(config())) == 2


@pytest.mark.kinds(PYMONGO)
@pytest.mark.skipif("DOCSTORE_TEST_URI" in os.environ, reason="needs a mongod whose TTL monitor runs every second")
@scenario
async def test_the_server_follows(env: Env) -> None:
    """Switched off in time nothing goes; switched on again everything does, whole."""
    with DevServer(arguments=["--setParameter", "ttlMonitorSleepSecs=1"]) as server:
        async with over_client(env, {"database": env.database, "ttl": 1}, server.uri) as store:
            rows = store.client[env.database]["docstore_checkpoints"]
            await fill(store, "t")
            await store.call("set_ttl", None)
            time.sleep(5)  # noqa: ASYNC251  # a sync client: no loop runs here
            assert len(await store.list(whole_thread())) == rows.count_documents({}) == 3
            await store.call("set_ttl", 1)
            started = time.monotonic()
            while any(store.client[env.database][f"docstore_{name}"].find_one({"tenant": ""}) for name in COLLECTIONS):
                assert time.monotonic() - started < 20
                time.sleep(0.2)  # noqa: ASYNC251  # as above
            assert time.monotonic() - started > 2


# A server that takes no TTL index.


def refuse_ttl_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As DocumentDB-like stores do, with code 67 for a command that has such an index."""
    start: Callable[[Any, Call], Any] = runners._method

    def refusing(collections: Any, call: Call) -> Any:
        if call.method == "create_indexes" and any("expireAfterSeconds" in model for model in call.arguments[0]):
            raise OperationFailure("the 'expireAfterSeconds' option is not supported", 67)
        return start(collections, call)

    monkeypatch.setattr(runners, "_method", refusing)


@scenario
async def test_a_store_that_takes_no_ttl_index(
    env: Env, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """setup says so and makes the others; the ttl is changed, switched off and on all the same, and expire does it."""
    refuse_ttl_indexes(monkeypatch)
    store = env.open(ttl=TTL)
    with caplog.at_level(logging.WARNING, "docstore_saver"):
        await store.call("setup")
    assert len([record for record in caplog.records if "expire()" in record.message]) == len(COLLECTIONS)
    await fill(store, "t")
    for name, wanted in (("checkpoints", {"newest", "run"}), ("writes", {"run", "interrupt"}), ("values", set())):
        made = set(raw(env, name).index_information())
        assert wanted | {"key"} <= made
        assert "ttl" not in made
    for new in (TTL // 2, TTL * 2, None, None, TTL):
        await env.open(auto_setup=False).call("set_ttl", new)
        assert (indexes(env), ttl_of(env)) == ([None] * 3, new)
        assert len(await env.open().list(whole_thread())) == 3
    age(env, OVER)
    assert await env.open().get(config()) is None
    assert await env.open().call("expire") == 1
    assert stored(env) == []


@scenario
async def test_another_refusal_is_not_passed_over(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof that the fake refuses what it says: an index that the saver cannot do without is an error."""
    start: Callable[[Any, Call], Any] = runners._method

    def refusing(collections: Any, call: Call) -> Any:
        if call.method == "create_indexes":
            raise OperationFailure("no indexes here", 67)
        return start(collections, call)

    monkeypatch.setattr(runners, "_method", refusing)
    store = env.open(ttl=TTL)
    with pytest.raises(Exception, match="no indexes here"):
        await store.call("setup")
