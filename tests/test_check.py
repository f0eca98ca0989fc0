"""check: finds what cannot be restored and what is left over, changes nothing, and repairs when it is told to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import chain, checkpoint, checkpoint_id, config, ids, metadata
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, MONGOMOCK, PYMONGO
from support.stores import Store

from docstore_saver.documents import now

pytestmark = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, MONGOMOCK)
LARGE = "v" * 4_000_000  # three parts
OLD = timedelta(hours=2)


def counters(n: int) -> dict[str, Any]:
    return {"counters_since_delta_snapshot": {"log": (n, n)}}


async def fill(store: Store) -> None:
    """A thread with a large value at its head, and one with a delta channel whose only snapshot is a value."""
    await chain(store, 2, "large")
    at = config("large", id=checkpoint_id(1))
    stored = await store.put(at, checkpoint(2, {"x": 2, "big": LARGE}), metadata(2), {"x": 3, "big": 3})
    await store.put_writes(stored, [("x", "w" * 20_000)], "task")
    at = await store.put(config("delta"), checkpoint(0, {"log": _DeltaSnapshot(["start"])}), metadata(), {"log": 1})
    await store.put_writes(at, [("log", "write 0 " * 5000)], "task 0")
    for n in range(1, 4):
        at = await store.put(at, checkpoint(n, {"x": n}, {"x": n, "log": n + 1}), metadata(n, **counters(n)))
        await store.put_writes(at, [("log", f"write {n}")], f"task {n}")


def age(env: Env) -> None:
    """Everything was stored two hours ago."""
    for name in ("checkpoints", "writes", "values"):
        rows = env.raw[f"docstore_{name}"]
        rows.update_many({"created_at": {"$exists": True}}, {"$set": {"created_at": now() - OLD}})
        rows.update_many({"touched_at": {"$exists": True}}, {"$set": {"touched_at": now() - OLD}})


def value_of(env: Env, **of: Any) -> str:
    return str(env.raw["docstore_values"].find_one({"n": 0, **of})["value_id"])


BREAKS: dict[str, tuple[str, Any, list[str]]] = {
    "a head part": ("values", lambda env: {"value_id": value_of(env, channel="big"), "n": 0}, ["large 2"]),
    "a middle part": ("values", lambda env: {"value_id": value_of(env, channel="big"), "n": 1}, ["large 2"]),
    "a write's value": ("values", lambda env: {"value_id": value_of(env, channel="x", field="write")}, ["large 2"]),
    "the seed": (
        "values",
        lambda env: {"value_id": value_of(env, channel="log", field="channel")},
        ["delta 0", "delta 1", "delta 2", "delta 3"],
    ),
    "an ancestor": (
        "checkpoints",
        lambda _: {"thread_id": "delta", "checkpoint_id": checkpoint_id(1)},
        ["delta 2", "delta 3"],
    ),
    "an ancestor's write's value": (
        "values",
        lambda env: {"value_id": value_of(env, channel="log", field="write")},
        ["delta 0", "delta 1", "delta 2", "delta 3"],
    ),
}


@pytest.mark.parametrize("what", BREAKS)
@scenario
async def test_what_is_missing_is_found_and_repaired(env: Env, what: str) -> None:
    store = env.open()
    await fill(store)
    collection, query, lost = BREAKS[what]
    assert (await store.call("check")).is_ok
    assert env.raw[f"docstore_{collection}"].delete_many(query(env)).deleted_count
    before = env.raw_bytes()
    report = await store.call("check")
    assert env.raw_bytes() == before
    found = [item for item in report.findings if item.kind == "incomplete"]
    assert [f"{item.thread_id} {int(str(item.checkpoint_id)[3:8], 16)}" for item in found] == lost
    assert not report.is_ok
    repaired = await store.call("check", repair=True)
    assert repaired.is_ok
    assert len([item for item in repaired.findings if item.kind == "incomplete"]) == len(lost)
    assert (await store.call("check")).is_ok
    reader = env.open()
    for thread, length in (("large", 3), ("delta", 4)):
        gone = [name for name in lost if name.startswith(thread)]
        rest = await reader.list(config(thread))
        if what == "a write's value" and thread == "large":
            assert len(rest) in (2, 3)
        else:
            missing = 1 if what == "an ancestor" and thread == "delta" else 0
            assert len(rest) == length - len(gone) - missing
        latest = await reader.get(config(thread))
        assert (latest and ids([latest])) == (ids(rest)[:1] or None)


@scenario
async def test_what_is_left_over_is_found_when_it_is_old(env: Env) -> None:
    """Writes of no checkpoint may be early; values of none may be about to be referred to."""
    store = env.open()
    await fill(store)
    await store.put_writes(config("delta", id="never stored"), [("x", "w" * 20_000)], "task")
    await chain(store, 1, "gone", values=lambda _: {"big": LARGE})
    env.raw["docstore_checkpoints"].delete_many({"thread_id": "gone"})
    assert (await store.call("check")).findings == ()
    assert (await store.call("check", repair=True)).findings == ()
    age(env)
    before = env.raw_bytes()
    report = await store.call("check")
    assert env.raw_bytes() == before
    assert {(item.kind, item.thread_id) for item in report.findings} == {("left over", "delta"), ("left over", "gone")}
    assert (await store.call("check", repair=True)).is_ok
    assert (await store.call("check")).findings == ()
    assert env.raw["docstore_values"].count_documents({"thread_id": "gone"}) == 0
    assert len(await store.list(config("delta"))) == 4


@scenario
async def test_parts_without_a_head_go(env: Env) -> None:
    store = env.open()
    await chain(store, 1, "t", values=lambda _: {"big": LARGE})
    env.raw["docstore_checkpoints"].delete_many({})
    env.raw["docstore_values"].delete_many({"n": 0})
    age(env)
    assert [item.kind for item in (await store.call("check")).findings] == ["left over"]
    await store.call("check", repair=True)
    assert env.raw["docstore_values"].count_documents({}) == 0


@scenario
async def test_a_healthy_store_has_no_findings(env: Env) -> None:
    """Lineage, hidden checkpoints within grace, forks and a copy are not faults, at any age of the values."""
    store = env.open()
    await fill(store)
    await store.call("prune", ["delta"], grace=0)
    await store.call("copy_thread", "delta", "copy")
    await store.call("prune", ["large"])
    age(env)
    assert (await store.call("check")).findings == ()
    assert (await store.call("check", ["delta"])).threads == 1
    assert (await store.call("check")).threads == 3
    before = env.raw_bytes()
    assert (await store.call("check", repair=True)).findings == ()
    assert env.raw_bytes() == before
