"""Whose ttl it is: the store's. Savers adopt it, change it, and switch it on over what is already there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.builders import chain, checkpoint, config
from support.commands import Commands
from support.env import Env, scenario
from support.kinds import MOTOR, PYMONGO

from docstore_saver.documents import now
from docstore_saver.state import Ttl

pytestmark = pytest.mark.kinds(PYMONGO, MOTOR)

LARGE = "y" * 20_000
COLLECTIONS = ("docstore_checkpoints", "docstore_writes", "docstore_values")


def indexes(env: Env) -> list[int | None]:
    """`expireAfterSeconds` of the TTL index of each collection."""
    found = (env.raw[name].index_information().get("ttl", {}) for name in COLLECTIONS)
    return [index.get("expireAfterSeconds") for index in found]


def settings(env: Env) -> Any:
    return env.raw["docstore_values"].find_one({"_id": "settings"})


def stamps(env: Env) -> set[Any]:
    return {doc["active_at"] for name in COLLECTIONS for doc in env.raw[name].find({"_id": {"$ne": "settings"}})}


async def some_thread(env: Env, **options: Any) -> Any:
    """A thread with documents in all three collections; answers the store."""
    store = env.open(**options)
    stored = await chain(store, 2, values=lambda n: {"x": n, "large": LARGE})
    await store.put_writes(stored[-1], [("x", 1)], "task")
    return store


@scenario
async def test_a_store_without_a_ttl(env: Env) -> None:
    await some_thread(env)
    assert indexes(env) == [None, None, None]
    assert settings(env) is None
    assert stamps(env) == {None}


@scenario
async def test_a_store_with_a_ttl(env: Env) -> None:
    await some_thread(env, ttl=1000)
    assert indexes(env) == [2100, 2100, 2100]
    found = settings(env)
    assert now() - timedelta(minutes=1) < found.pop("ttl_since") <= now()
    assert found == {"_id": "settings", "format": 1, "ttl": 1000}
    assert len(stamps(env)) == 1
    assert None not in stamps(env)


@pytest.mark.parametrize("auto_setup", [True, False])
@scenario
async def test_a_saver_without_a_ttl_adopts_the_stores(env: Env, auto_setup: bool) -> None:
    await env.open(ttl=10_000_000).call("setup")
    store = await some_thread(env, auto_setup=auto_setup)
    assert len(stamps(env)) == 1
    assert None not in stamps(env)
    assert store.saver._state.ttl == Ttl(10_000_000)
    assert indexes(env) == [Ttl(10_000_000).expire_after_seconds] * 3


@scenario
async def test_adopting_costs_nothing_later(env: Env) -> None:
    """One look at the first use, not one for each call or clone."""
    await env.open(ttl=10_000_000).call("setup")
    store = env.open()
    stored = await chain(store, 1)
    clone = store.over(store.saver.for_tenant("acme"))
    await chain(clone, 1)
    with env.commands.count() as sent:
        await store.put(stored[-1], checkpoint(1, {"x": 1}))
        await clone.get(config())
    assert Commands.names(sent) == ["insert checkpoints", "aggregate checkpoints"]


@pytest.mark.parametrize(("new", "order"), [(500, [0, 1, 2]), (2000, [2, 1, 0])], ids=["shorter", "longer"])
@scenario
async def test_a_change_of_ttl(env: Env, new: int, order: list[int]) -> None:
    """In all three indexes and the settings, in the order in which no value expires before its checkpoint."""
    await some_thread(env, ttl=1000)
    other = env.open(ttl=new)
    with env.commands.count() as sent:
        await other.call("setup")
    changed = [name for name in Commands.names(sent) if name.startswith("collMod")]
    short = ["checkpoints", "writes", "values"]
    assert changed == [f"collMod {short[at]}" for at in order]
    assert indexes(env) == [Ttl(new).expire_after_seconds] * 3
    assert settings(env)["ttl"] == new
    with env.commands.count() as sent:
        await env.open(ttl=new).call("setup")
    assert not [name for name, _ in sent if name in ("collMod", "update")]


@scenario
async def test_switching_on_over_old_data(env: Env) -> None:
    """It gets a stamp before the index exists, and a saver that is already running takes notice."""
    running = await some_thread(env)
    await env.open(ttl=10_000_000).call("setup")
    assert indexes(env) == [Ttl(10_000_000).expire_after_seconds] * 3
    assert len(stamps(env)) == 1
    assert None not in stamps(env)
    assert len(await running.list(config())) == 2
    head = await running.get(config())
    await running.put(head.config, checkpoint(2, {"x": 2}))
    await running.put_writes(head.config, [("x", 1)], "another")
    assert len(stamps(env)) == 1
    assert None not in stamps(env)


@scenario
async def test_what_a_running_saver_stored_before_it_noticed(env: Env) -> None:
    """A run goes on without a read while another process switches the ttl on.

    Its documents must not stay for ever, nor lose the values that they refer to when those are over.
    """
    running = env.open()
    stored = await chain(running, 1, values=lambda n: {"x": n, "large": LARGE})
    await env.open(ttl=10_000_000).call("setup")
    new = checkpoint(1, {"x": 1, "large": LARGE}, {"x": 2, "large": 1})
    middle = await running.put(stored[-1], new, None, {"x": 2})
    await running.put_writes(middle, [("x", 1)], "task")
    await running.get(config())
    await running.put(middle, checkpoint(2, {"x": 2}))
    assert None not in stamps(env)
    assert len(stamps(env)) == 1


@scenario
async def test_an_unprepared_store_is_prepared_once(env: Env) -> None:
    """Setup may run any number of times, and a second saver's changes nothing."""
    await some_thread(env, ttl=1000)
    before = [env.raw[name].index_information() for name in COLLECTIONS]
    for _ in range(2):
        store = env.open(ttl=1000)
        await store.call("setup")
        await store.call("setup")
    assert [env.raw[name].index_information() for name in COLLECTIONS] == before
