"""expire, for stores without TTL indexes, and set_ttl on a store that is in use (docs/format.md, section 7)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pymongo.errors import OperationFailure
from support.builders import chain, checkpoint, checkpoint_id, config, ids, metadata, whole_thread
from support.env import Env, scenario
from support.interleave import Stepper, orders, run_in_order, runner_for
from support.kinds import ASYNC_PYMONGO, EMBEDDED, MONGOMOCK, MOTOR, PYMONGO
from support.made import over_client
from support.maintained import counts, stored
from support.stores import Store

from docstore_saver import runners
from docstore_saver.calls import COLLECTIONS, Call, Plan
from docstore_saver.devserver import DevServer
from docstore_saver.documents import now
from docstore_saver.errors import ThreadExpiredError
from docstore_saver.plans import expiry, heads, ttl
from docstore_saver.state import Ttl

pytestmark = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, *EMBEDDED)

TTL = 10_000_000
OVER = timedelta(seconds=Ttl(TTL).expire_after_seconds + 60)
"""An age at which a server would remove a thread."""
LARGE = "y" * 20_000
STEPPED = (PYMONGO, MONGOMOCK)
NOTHING = {"checkpoints": 0, "writes": 0, "values": 0}


def raw(env: Env, collection: str) -> Any:
    return env.raw[f"docstore_{collection}"]


async def without_indexes(env: Env, **options: Any) -> Store:
    """A saver with a ttl on a store that takes no TTL index: nothing goes by itself."""
    store = env.open(ttl=TTL, **options)
    await store.call("setup")
    for name in COLLECTIONS:
        raw(env, name).drop_index("ttl")
    return store


async def fill(store: Store, thread: str) -> None:
    """Documents in all three collections, in two namespaces."""
    stored_configs = await chain(store, 2, thread, values=lambda n: {"x": n, "large": LARGE})
    await store.put_writes(stored_configs[-1], [("x", 1), ("x", LARGE)], "task")
    await chain(store, 1, thread, "sub:1")


def age(env: Env, by: timedelta, **query: Any) -> None:
    """Let documents have their last put so long ago."""
    for name in COLLECTIONS:
        wanted = {"thread_id": {"$exists": True}, **query}
        raw(env, name).update_many(wanted, {"$set": {"active_at": now() - by}})


def expire(saver: Any) -> Plan[int]:
    """`saver.expire()` as one plan."""
    work, answer = saver._work_expire(None), None
    while True:
        try:
            plan = work.send(answer)
        except StopIteration as stop:
            return int(stop.value)
        answer = yield from plan


@scenario
async def test_whole_threads_go_and_others_stay(env: Env) -> None:
    store = await without_indexes(env)
    for thread in ("over", "over too", "alive"):
        await fill(store, thread)
    age(env, OVER, thread_id={"$in": ["over", "over too"]})
    alive = stored(env, thread_id="alive")
    assert await store.call("expire") == 2
    assert stored(env) == alive
    assert await store.call("expire") == 0
    assert len(await store.list(whole_thread("alive"))) == 3


@scenario
async def test_a_thread_waits_for_its_step_and_grace(env: Env) -> None:
    """Readers do not see it any more; a run that loaded it in time may still bring it back."""
    store = await without_indexes(env)
    await fill(store, "t")
    before = counts(env)
    age(env, timedelta(seconds=TTL + 60))
    assert await store.get(config()) is None
    assert await store.call("expire") == 0
    age(env, OVER - timedelta(seconds=120))
    assert await store.call("expire") == 0
    assert counts(env) == before
    age(env, OVER)
    assert await store.call("expire") == 1
    assert counts(env) == NOTHING


@scenario
async def test_a_thread_with_one_live_checkpoint_stays_whole(env: Env) -> None:
    store = await without_indexes(env)
    await fill(store, "t")
    for alive in ({"checkpoint_ns": "sub:1"}, {"checkpoint_ns": "", "checkpoint_id": checkpoint_id(1)}):
        age(env, OVER)
        raw(env, "checkpoints").update_one(alive, {"$set": {"active_at": now()}})
        before = env.raw_bytes()
        assert await store.call("expire") == 0
        assert env.raw_bytes() == before
    raw(env, "checkpoints").update_many({}, {"$set": {"active_at": now() - OVER}})
    raw(env, "checkpoints").update_one({"checkpoint_ns": "sub:1"}, {"$set": {"active_at": None}})
    assert await store.call("expire") == 0  # stored by a saver that knew of no ttl yet


@scenario
async def test_a_store_without_a_ttl_keeps_everything(env: Env) -> None:
    store = env.open()
    await fill(store, "t")
    age(env, OVER)
    before = env.raw_bytes()
    assert await store.call("expire") == 0
    assert env.raw_bytes() == before


@scenario
async def test_a_saver_without_a_ttl_takes_the_stores(env: Env) -> None:
    await fill(await without_indexes(env), "t")
    age(env, OVER)
    assert await env.open(auto_setup=False).call("expire") == 1
    assert counts(env) == NOTHING


@pytest.mark.parametrize("size", [1, 2, 1000])
@scenario
async def test_many_threads_in_pages(env: Env, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Those that stay are passed over, not met again and again."""
    monkeypatch.setattr(expiry, "SCAN", size)
    store = await without_indexes(env)
    names = [f"t{n}" for n in range(7)]
    for name in names:
        await chain(store, 2, name)
    age(env, OVER)
    raw(env, "checkpoints").update_many(
        {"thread_id": {"$in": names[::3]}, "checkpoint_id": checkpoint_id(1)}, {"$set": {"active_at": now()}}
    )
    assert await store.call("expire") == 4
    assert sorted({document["thread_id"] for document in stored(env)}) == names[::3]


@scenario
async def test_hidden_checkpoints_do_not_keep_a_thread(env: Env) -> None:
    store = await without_indexes(env)
    await fill(store, "t")
    await store.call("prune", ["t"])
    assert raw(env, "checkpoints").count_documents({"hidden_at": {"$ne": None}}) == 1
    age(env, OVER)
    assert await store.call("expire") == 1
    assert counts(env) == NOTHING


@pytest.mark.kinds(*STEPPED)
@scenario
async def test_a_thread_that_starts_anew_beside_it(env: Env) -> None:
    """In every order of their commands the new checkpoint is whole afterwards, and nothing of the old is seen."""
    lengths = []
    for number, order in enumerate(["alone", *orders(*await lengths_of_both(env))]):
        thread = f"t{number}"
        _, put, expiring = await a_race(env, thread)
        if isinstance(order, str):
            lengths = [put.finish(), expiring.finish()]
        else:
            run_in_order(put, expiring, order)
        assert (put.failure, expiring.failure) == (None, None)
        reader = env.open()
        assert ids(await reader.list(whole_thread(thread))) == [checkpoint_id(9)]
        assert (await reader.get(config(thread))).checkpoint["channel_values"] == {"x": 9, "large": LARGE + "!"}
    assert lengths == [5, 1]  # one that started first keeps its thread: the look is all there is
    assert number > 100


async def a_race(env: Env, thread: str) -> tuple[Store, Stepper, Stepper]:
    """A put without a parent to a thread that is over, and its expiry."""
    store = await without_indexes(env)
    runner = runner_for(store.client, env.database, store.saver._names)
    await fill(store, thread)
    age(env, OVER, thread_id=thread)
    other = env.open(ttl=TTL, auto_setup=False).saver
    new = checkpoint(9, {"x": 9, "large": LARGE + "!"})
    put = other._plan_put(config(thread), new, metadata(9), new["channel_versions"])[1]
    cutoff = now() - timedelta(seconds=Ttl(TTL).expire_after_seconds)
    return store, Stepper(put, runner), Stepper(expiry.expire_thread("", thread, cutoff), runner)


async def lengths_of_both(env: Env) -> tuple[int, int]:
    _, put, expiring = await a_race(env, "count")
    expired = expiring.finish()
    return put.finish(), expired


@pytest.mark.kinds(*STEPPED)
@scenario
async def test_a_run_within_grace_beside_it(env: Env) -> None:
    """Its put brings the thread back; in every order expire leaves all of it alone."""
    for number, order in enumerate(orders(4, 4)):
        thread = f"t{number}"
        store = await without_indexes(env)
        runner = runner_for(store.client, env.database, store.saver._names)
        await fill(store, thread)
        age(env, timedelta(seconds=TTL + 600), thread_id=thread)
        other = env.open(ttl=TTL, auto_setup=False).saver
        new = checkpoint(9, {"x": 9}, {"x": 10, "large": 2})
        at = config(thread, id=checkpoint_id(1))
        put = Stepper(other._plan_put(at, new, metadata(9), {"x": 10})[1], runner)
        cutoff = now() - timedelta(seconds=Ttl(TTL).expire_after_seconds)
        run_in_order(put, Stepper(expiry.expire_thread("", thread, cutoff), runner), list(order))
        assert put.failure is None
        found = await env.open().get(config(thread))
        assert found.checkpoint["channel_values"] == {"x": 9, "large": LARGE}
        assert len(await env.open().list(whole_thread(thread))) == 4


@scenario
async def test_a_run_that_outlived_its_thread(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint would have lost what its delta channel is rebuilt from; where another process expired it ..."""
    store, head = await a_long_run(env)
    assert await env.open(auto_setup=False).call("expire") == 1
    await refused(env, monkeypatch, store, head)


@scenario
async def test_a_run_that_outlived_its_thread_in_the_process_that_expires(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    """... and where its own did, from a timer, as the documentation says."""
    store, head = await a_long_run(env)
    assert await store.call("expire") == 1
    await refused(env, monkeypatch, store, head)


async def a_long_run(env: Env) -> tuple[Store, Any]:
    """A run that has loaded a thread which is over since."""
    store = await without_indexes(env)
    at = await store.put(config(), checkpoint(0, {"log": _DeltaSnapshot(["a"])}))
    await store.put_writes(at, [("log", "b")], "task")
    age(env, OVER)
    return store, at


async def refused(env: Env, monkeypatch: pytest.MonkeyPatch, store: Store, head: Any) -> None:
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2 * 3600)
    monkeypatch.setattr(heads, "time", later)
    before = env.raw_bytes()
    with pytest.raises(ThreadExpiredError):
        await store.put(head, checkpoint(1, {}, {"log": 2}), metadata(1), {"log": 2})
    assert env.raw_bytes() == before
    await store.put(config(), checkpoint(9, {"x": 9}))
    assert ids(await store.list(config())) == [checkpoint_id(9)]


@pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, MOTOR)
@scenario
async def test_commands(env: Env) -> None:
    store = await without_indexes(env)
    await fill(store, "t")
    with env.commands.count() as sent:
        await store.call("expire")
    assert env.commands.names(sent) == ["find values", "aggregate checkpoints"]
    age(env, OVER)
    with env.commands.count() as sent:
        await store.call("expire")
    assert env.commands.names(sent) == [
        *("find values", "aggregate checkpoints"),
        *("find checkpoints", "delete values", "delete writes", "delete checkpoints"),
        *("find values", "aggregate checkpoints"),
    ]


# set_ttl


def indexes(env: Env) -> list[int | None]:
    """`expireAfterSeconds` of the TTL index of each collection."""
    found = (raw(env, name).index_information().get("ttl", {}) for name in COLLECTIONS)
    return [index.get("expireAfterSeconds") for index in found]


def ttl_of(env: Env) -> int | None:
    settings = raw(env, "values").find_one({"_id": "settings"})
    return settings["ttl"] if settings else None


def stamps(env: Env) -> set[Any]:
    return {document["active_at"] for document in stored(env)}


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
    assert ttl.ASK_AGAIN_SECONDS == 600
    running, store = env.open(ttl=TTL), env.open()
    (at,) = await chain(running, 1)
    for new in (TTL * 2, None, TTL):
        await store.call("set_ttl", new)
        assert running.saver._state.ttl != (Ttl(new) if new else None)
        monkeypatch.setattr(ttl, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 601))
        n = 1 + int(at["configurable"]["checkpoint_id"][3:8], 16)
        at = await running.put(at, checkpoint(n, {"x": n}))
        assert running.saver._state.ttl == (Ttl(new) if new else None)
        assert len(stamps(env)) == 1
        assert (None in stamps(env)) == (new is None)
        monkeypatch.undo()
        running.saver._state.ttl_read = time.monotonic()


def let_time_pass(env: Env) -> None:
    """What the server's monitor does: remove what is as old as `OVER`; and what the second next step brings."""
    youngest = max(stamp for stamp in stamps(env) if stamp is not None)
    if all(stamp is None or stamp == youngest for stamp in stamps(env)):
        for name in COLLECTIONS:
            raw(env, name).drop_index("ttl")
        age(env, OVER, active_at=youngest)
    for name in COLLECTIONS:
        raw(env, name).delete_many({"active_at": {"$lte": now() - OVER + timedelta(seconds=1)}})


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
