"""Public bug reports that only a real server shows: TTL indexes, query plans, round trips."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.builders import chain, checkpoint, config, metadata, whole_thread, written
from support.env import Env, scenario
from support.kinds import ON_MONGOD

pytestmark = pytest.mark.kinds(*ON_MONGOD)
HOUR = 3600
COLLECTIONS = ["docstore_checkpoints", "docstore_values", "docstore_writes"]


def lifetimes(env: Env) -> dict[str, list[int]]:
    """The lifetimes of each collection's TTL indexes."""
    return {
        name: [ix["expireAfterSeconds"] for ix in env.raw[name].list_indexes() if "expireAfterSeconds" in ix]
        for name in sorted(env.raw.list_collection_names())
    }


def one_for_each(least: int, most: int, found: dict[str, list[int]]) -> bool:
    """One TTL index in each collection, of a lifetime from the ttl to the ttl with what is added for grace."""
    return list(found) == COLLECTIONS and all(len(of) == 1 and least <= of[0] <= most for of in found.values())


@scenario
async def test_a_ttl_can_be_switched_on_later(env: Env) -> None:
    """A ttl is not ignored because the collections exist already (langchain-mongodb #299)."""
    before = env.open(inline_limit=64)
    old = await before.put(config("old"), checkpoint(0, {"big": "b" * 100}), metadata())
    await before.put_writes(old, [("x", 1)], "task")
    assert lifetimes(env) == {name: [] for name in COLLECTIONS}
    store = env.open(ttl=HOUR)
    new = await store.put(config("new"), checkpoint(1), metadata())
    await store.put_writes(new, [("x", 2)], "task")
    assert one_for_each(HOUR, 3 * HOUR, lifetimes(env)), lifetimes(env)
    # An index passes over documents without a date, and so would the threads from before.
    documents = [doc for name in COLLECTIONS for doc in env.raw[name].find({"thread_id": {"$exists": True}})]
    assert len(documents) == 5
    assert all(doc["active_at"] is not None for doc in documents)
    assert written(await store.get(old)) == [1]


@scenario
async def test_a_ttl_can_be_changed(env: Env) -> None:
    """Another ttl changes the index, both ways, and conflicts with nothing (langchain-mongodb #299)."""
    for seconds in (HOUR, 48 * HOUR, 12 * HOUR):
        store = env.open(ttl=seconds)
        await store.put(config(), checkpoint(seconds), metadata())
        assert one_for_each(seconds, seconds + seconds // 10 + HOUR, lifetimes(env)), lifetimes(env)
        # A saver that asks for none takes the store's.
        settled = lifetimes(env)
        await env.open().put(config(), checkpoint(seconds + 1), metadata())
        assert lifetimes(env) == settled
        assert all(doc["active_at"] for doc in env.raw["docstore_checkpoints"].find())


@contextmanager
def profiled(env: Env) -> Iterator[list[dict[str, Any]]]:
    """What the server did for this test's database inside the block."""
    operations: list[dict[str, Any]] = []
    env.raw.command("profile", 2)
    try:
        yield operations
    finally:
        env.raw.command("profile", 0)
        own = f"{env.database}.system.profile"
        operations += env.raw["system.profile"].find({"ns": {"$ne": own}, "op": {"$ne": "none"}}).sort("ts")


@scenario
async def test_no_thread_operation_scans_a_collection(env: Env) -> None:
    """Reading, listing, walking and deleting a thread all run on indexes (langgraphjs #2551)."""
    store = env.open(inline_limit=64)
    for thread in ("t", "other"):
        for at in await chain(store, 6, thread, values=lambda n: {"x": n, "big": str(n) * 100}):
            await store.put_writes(at, [("x", "w" * 100)], "task")
    stored = await store.list(config())
    other = env.open()
    await other.list(None, limit=1)  # its setup is over
    with profiled(env) as operations:
        for where in (config(), stored[3].config):
            await other.get(where)
            await other.list(where, limit=3)
        await other.list(whole_thread(), limit=3)
        await other.list(config(), before=stored[1].config, filter={"source": "loop"})
        await other.history(stored[0].config, ["x"])
        await other.put(stored[2].config, checkpoint(50, {"big": "n"}), metadata())
        await other.put_writes(stored[2].config, [("x", 1)], "another")
        await other.delete_thread("t")
    plans = [(found["op"], found["ns"], found["planSummary"]) for found in operations if found.get("planSummary")]
    assert {op for op, _, _ in plans} >= {"query", "command", "remove"}
    assert {namespace.partition(".")[2] for _, namespace, _ in plans} == set(COLLECTIONS)
    assert [plan for plan in plans if "COLLSCAN" in plan[2]] == []


@scenario
async def test_a_listing_is_a_few_round_trips(env: Env) -> None:
    """Listing does not ask once for each checkpoint (langchain-aws #1091, #1016, langgraph #2403)."""
    store = env.open()
    for n, at in enumerate(await chain(store, 90)):
        await store.put_writes(at, [("x", n)], "task")
    other = env.open()
    await other.list(None, limit=1)  # its setup is over
    with profiled(env) as operations:
        found = await other.list(config())
    assert [written(item) for item in found] == [[n] for n in reversed(range(90))]
    assert len(operations) <= 3, [(one["op"], one["ns"]) for one in operations]
