"""expire, for stores without TTL indexes (docs/format.md, section 7)."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import chain, checkpoint, checkpoint_id, config, ids, metadata, whole_thread
from support.env import Env, scenario
from support.expiring import LARGE, OVER, TTL, age, fill, raw, without_indexes
from support.interleave import Stepper, orders, run_in_order, runner_for
from support.kinds import ASYNC_PYMONGO, EMBEDDED, MONGOMOCK, MOTOR, PYMONGO
from support.maintained import counts, stored
from support.stores import Store

from docstore_saver.calls import Document
from docstore_saver.documents import now
from docstore_saver.errors import ThreadExpiredError
from docstore_saver.plans import expiry, heads
from docstore_saver.state import Ttl

pytestmark = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, *EMBEDDED)

STEPPED = (PYMONGO, MONGOMOCK)
NOTHING = {"checkpoints": 0, "writes": 0, "values": 0}


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


@scenario
async def test_a_tenant_expires_its_own(env: Env) -> None:
    """Thread ids repeat across tenants, and each tenant's saver sees to its own."""
    store = await without_indexes(env)
    other = store.over(store.saver.for_tenant("acme"))
    for one in (store, other):
        await fill(one, "t")
    age(env, OVER)
    theirs = stored(env, tenant="acme")
    assert await store.call("expire") == 1
    assert stored(env) == theirs
    raw(env, "checkpoints").update_many({"tenant": "acme"}, {"$set": {"active_at": now()}})
    assert (await store.call("expire"), await other.call("expire")) == (0, 0)
    age(env, OVER)
    assert await other.call("expire") == 1
    assert counts(env) == NOTHING


@scenario
async def test_the_empty_thread_id(env: Env) -> None:
    """It is a thread id as any other to LangGraph."""
    store = await without_indexes(env)
    for thread in ("", "t"):
        await fill(store, thread)
    age(env, OVER, thread_id="")
    assert await store.call("expire") == 1
    assert {document["thread_id"] for document in stored(env)} == {"t"}


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
    return store, Stepper(put, runner), Stepper(expiry.expire_thread("", thread, old()), runner)


def old() -> Document:
    return {"active_at": {"$lte": now() - timedelta(seconds=Ttl(TTL).expire_after_seconds)}}


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
        run_in_order(put, Stepper(expiry.expire_thread("", thread, old()), runner), list(order))
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
        *("find checkpoints", "update checkpoints", "delete values", "delete writes", "delete checkpoints"),
        *("find values", "aggregate checkpoints"),
    ]
