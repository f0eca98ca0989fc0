"""What lies in the store and is not as it should be: another saver's documents, a newer format, missing values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, ObjectId
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import chain, checkpoint, checkpoint_id, config, metadata
from support.env import Env, scenario
from support.kinds import EMBEDDED, MOTOR, PYMONGO
from support.stores import Store

from docstore_saver.errors import ConfigurationError, FormatVersionError, IncompleteCheckpointError

pytestmark = pytest.mark.kinds(PYMONGO, MOTOR, *EMBEDDED)

LARGE = "y" * 20_000
MULTIPART = "z" * 4_000_000
"""A value of three parts."""

FOREIGN: dict[str, dict[str, Any]] = {
    "MongoDBSaver": {
        "_id": ObjectId(),
        "thread_id": "t",
        "checkpoint_ns": "",
        "checkpoint_id": checkpoint_id(0),
        "parent_checkpoint_id": None,
        "type": "msgpack",
        "checkpoint": Binary(b"\x80"),
        "metadata": {"source": "loop"},
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    },
    "another application": {"_id": "a", "name": "order"},
}


async def two_checkpoints(store: Store, value: Any = LARGE) -> tuple[dict[str, Any], Any]:
    """A parent with a large value, its config, and a child that inherits it without carrying it."""
    versions = {"large": 1, "x": 1}
    parent = await store.put(config(), checkpoint(0, {"large": value, "x": 1}, versions))
    return parent, checkpoint(1, {"x": 2}, {"large": 1, "x": 2})


@pytest.mark.parametrize("maker", FOREIGN)
@scenario
async def test_a_store_of_another_saver(env: Env, maker: str) -> None:
    """Nothing of theirs is touched, nothing of ours is added, and the refusal is not remembered."""
    theirs = env.raw["docstore_checkpoints"]
    theirs.insert_one(FOREIGN[maker])
    before = env.raw_bytes()
    store = env.open()
    calls = [
        lambda: store.call("setup"),
        lambda: store.put(config(), checkpoint(1)),
        lambda: store.get(config()),
        lambda: store.list(None),
        lambda: store.delete_thread("t"),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match=rf"'docstore_checkpoints'.*{maker}.*`migrate`") as caught:
            await call()
        assert "collection_prefix=" in str(caught.value)
    assert env.raw_bytes() == before
    assert env.raw.list_collection_names() == ["docstore_checkpoints"]
    theirs.delete_many({})
    await store.put(config(), checkpoint(1, {"x": 1}))
    assert (await store.get(config())).checkpoint["channel_values"] == {"x": 1}


@scenario
async def test_another_prefix_beside_another_saver(env: Env) -> None:
    """MongoDBSaver's default names do not meet ours, and a prefix keeps any two stores apart."""
    for name in ("checkpoints", "checkpoint_writes", "docstore_checkpoints"):
        env.raw[name].insert_one({**FOREIGN["MongoDBSaver"]})
    store = env.open(collection_prefix="ours_")
    await store.put(config(), checkpoint(1, {"x": 1}))
    assert (await store.get(config())).checkpoint["channel_values"] == {"x": 1}
    assert env.raw["checkpoints"].count_documents({}) == 1


def make_newer(env: Env, collection: str, query: dict[str, Any] | None = None) -> None:
    changed = env.raw[f"docstore_{collection}"].update_many(query or {}, {"$set": {"format": 2}})
    assert changed.modified_count


async def refuse_newer(*calls: Any) -> None:
    for call in calls:
        with pytest.raises(FormatVersionError, match=r"format 2.*[Uu]pgrade"):
            await call()


@scenario
async def test_a_newer_checkpoint(env: Env) -> None:
    store = env.open()
    parent, child = await two_checkpoints(store)
    make_newer(env, "checkpoints")
    other = env.open()
    await refuse_newer(
        lambda: other.get(config()),
        lambda: other.get(parent),
        lambda: other.list(config()),
        lambda: other.list(None, filter={"step": 0}),
        lambda: other.put(parent, child, None, {"x": 2}),
    )
    assert env.raw["docstore_checkpoints"].count_documents({}) == 1


@pytest.mark.parametrize("collection", ["writes", "values"])
@scenario
async def test_a_newer_document_of_a_checkpoint(env: Env, collection: str) -> None:
    store = env.open()
    parent, _ = await two_checkpoints(store)
    await store.put_writes(parent, [("x", 1)], "task")
    make_newer(env, collection, {"_id": {"$ne": "settings"}})
    await refuse_newer(lambda: store.get(config()), lambda: store.list(config()))


@scenario
async def test_a_newer_ancestor_of_a_delta_channel(env: Env) -> None:
    """Its links may mean something else; following them could give a shorter state without an error."""
    store = env.open()
    seed = await store.put(config(), checkpoint(0, {"log": _DeltaSnapshot(["a"])}))
    middle = await store.put(seed, checkpoint(1, {}, {"log": 2}), metadata(1))
    head = await store.put(middle, checkpoint(2, {}, {"log": 3}), metadata(2))
    assert (await store.history(head, ["log"]))["log"]["seed"] == _DeltaSnapshot(["a"])
    make_newer(env, "checkpoints", {"checkpoint_id": checkpoint_id(1)})
    await refuse_newer(lambda: store.history(head, ["log"]))


@scenario
async def test_a_newer_write_of_a_delta_channel(env: Env) -> None:
    store = env.open()
    seed = await store.put(config(), checkpoint(0, {"log": _DeltaSnapshot(["a"])}))
    await store.put_writes(seed, [("log", "b")], "task")
    head = await store.put(seed, checkpoint(1, {}, {"log": 2}), metadata(1))
    make_newer(env, "writes")
    await refuse_newer(lambda: store.history(head, ["log"]))


@scenario
async def test_newer_settings(env: Env) -> None:
    """What they say may no longer be the ttl alone."""
    await env.open(ttl=1_000_000).put(config(), checkpoint(0, {"x": 1}))
    make_newer(env, "values", {"_id": "settings"})
    for options in ({}, {"ttl": 1_000_000}, {"auto_setup": False}):
        other = env.open(**options)
        await refuse_newer(lambda other=other: other.get(config()))


@pytest.mark.parametrize("missing", [0, 1, 2])
@scenario
async def test_a_missing_part_of_a_value(env: Env, missing: int) -> None:
    """Never an absent channel, never a shorter state."""
    store = env.open()
    await two_checkpoints(store, MULTIPART)
    assert env.raw["docstore_values"].delete_one({"n": missing}).deleted_count == 1
    expected = rf"Part {missing + 1} of 3 .*channel 'large'.*check\(repair=True\)"
    for reader in (store, env.open()):
        for call in (reader.get, reader.list):
            with pytest.raises(IncompleteCheckpointError, match=expected):
                await call(config())


@scenario
async def test_a_missing_value_of_a_write(env: Env) -> None:
    store = env.open()
    (stored,) = await chain(store, 1)
    await store.put_writes(stored, [("x", LARGE)], "task")
    env.raw["docstore_values"].delete_many({"_id": {"$ne": "settings"}})
    for call in (store.get, store.list):
        with pytest.raises(IncompleteCheckpointError, match="field 'write', channel 'x'"):
            await call(config())


@scenario
async def test_a_missing_seed(env: Env) -> None:
    store = env.open()
    seed = await store.put(config(), checkpoint(0, {"log": _DeltaSnapshot(["a"])}))
    head = await store.put(seed, checkpoint(1, {}, {}), metadata(1), {})
    env.raw["docstore_values"].delete_many({"_id": {"$ne": "settings"}})
    with pytest.raises(IncompleteCheckpointError, match="channel 'log'"):
        await store.history(head, ["log"])


@scenario
async def test_a_child_of_a_checkpoint_with_a_missing_value(env: Env) -> None:
    """A put that would inherit it refuses and stores nothing; one that carries it stores it anew."""
    parent, child = await two_checkpoints(env.open())
    env.raw["docstore_values"].delete_many({"_id": {"$ne": "settings"}})
    store = env.open()  # another process, which has not stored or touched the value
    before = env.raw_bytes()
    with pytest.raises(IncompleteCheckpointError, match=r"\['large'\].*was not stored"):
        await store.put(parent, child, None, {"x": 2})
    assert env.raw_bytes() == before
    whole = {**child, "channel_values": {"large": LARGE, "x": 2}}
    await store.put(parent, whole, None, {"x": 2})
    assert (await store.get(config())).checkpoint["channel_values"] == {"large": LARGE, "x": 2}


@pytest.mark.parametrize("field", ["core", "values", "metadata"])
@scenario
async def test_a_missing_field(env: Env, field: str) -> None:
    store = env.open()
    await chain(store, 1)
    env.raw["docstore_checkpoints"].update_many({}, {"$unset": {field: ""}})
    for call in (store.get, store.list):
        with pytest.raises(IncompleteCheckpointError, match=f"its {field} are gone"):
            await call(config())
