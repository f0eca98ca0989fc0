"""copy_thread: inside the server where it can, in batches where it must, with the same result."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from support.builders import chain, checkpoint, checkpoint_id, config, ids, metadata, whole_thread
from support.env import Env, scenario
from support.kinds import ON_MONGOD, PYMONGO
from support.stores import Store
from test_sealing import Binding, stock

from docstore_saver.calls import COLLECTIONS
from docstore_saver.documents import now
from docstore_saver.errors import RetentionRefusedError

LARGE = "v" * 100_000
NAMES = ["$checkpoint_id", "$$ROOT", "{}", ":", "a" * 500, "ü\u200b", "$_id:"]


def bound() -> EncryptedSerializer:
    """Sealed by a cipher that refuses whatever stands in another place than it was sealed for."""
    return EncryptedSerializer(Binding())


async def fill(store: Store, thread: str) -> None:
    """Two namespaces, a fork, writes of every kind, values of one part and of several."""
    stored = await chain(store, 4, thread, values=lambda n: {"x": n, "big": LARGE, "new": f"{n}" * 30_000})
    await store.put(stored[1], checkpoint(9, {"x": "fork", "huge": "h" * 4_000_000}), metadata(9))
    await store.put_writes(stored[-1], [("x", 1), ("x", LARGE), ("__interrupt__", "?")], "task", "~1")
    await chain(store, 2, thread, "sub:1")


async def state(store: Store, thread: str) -> list[Any]:
    """All that readers see of a thread, in an order of its own: namespaces may hold the same ids."""
    found = [
        (item.config["configurable"]["checkpoint_ns"], item.checkpoint, item.metadata, item.pending_writes)
        for item in await store.list(whole_thread(thread))
    ]
    return sorted(found, key=lambda item: (item[0], item[1]["id"]))


def documents(env: Env, thread: str) -> list[Any]:
    """All documents of a thread, without what names the thread or the time."""
    own = ("_id", "thread_id", "touched_at", "active_at")
    found = [
        {"rest of _id": document["_id"][22:], **{name: value for name, value in document.items() if name not in own}}
        for name in COLLECTIONS
        for document in env.raw[f"docstore_{name}"].find({"thread_id": thread})
    ]
    return sorted(found, key=lambda document: document["rest of _id"])


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_the_server_copies_in_eleven_commands(env: Env) -> None:
    """Whatever its size: a look at both threads, three copies, a look at both and for a commit, which takes three."""
    store = env.open()
    await fill(store, "source")
    with env.commands.count() as sent:
        await store.call("copy_thread", "source", "target")
    assert env.commands.names(sent) == [
        *("find checkpoints", "find checkpoints"),
        *("aggregate writes", "aggregate values", "aggregate checkpoints"),
        *("find checkpoints", "find checkpoints", "find values"),
        *("insert values", "update checkpoints", "delete values"),
    ]
    assert await state(store, "target") == await state(store, "source")
    assert len(await state(store, "target")) == 7


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_batches_and_the_server_store_the_same(env: Env) -> None:
    store = env.open()
    await fill(store, "source")
    await store.call("copy_thread", "source", "by the server")
    store.saver._state.dialect = replace(store.saver._state.dialect, merge=False)
    with env.commands.count() as sent:
        await store.call("copy_thread", "source", "in batches")
    assert "aggregate checkpoints" not in env.commands.names(sent)

    def settled(thread: str) -> list[Any]:
        return [{**document, "landing": None} for document in documents(env, thread)]

    assert settled("by the server") == settled("in batches") == settled("source")


@pytest.mark.parametrize("serde", [stock, bound])
@scenario
async def test_what_is_sealed_is_sealed_for_its_new_place(env: Env, serde: Any) -> None:
    store = env.open(serde=serde())
    await fill(store, "source")
    await store.call("copy_thread", "source", "target")
    assert await state(store, "target") == await state(store, "source")
    assert (await store.call("check")).findings == ()
    await store.delete_thread("source")
    reader = env.open(serde=serde())
    assert len(await state(reader, "target")) == 7


@pytest.mark.parametrize("name", NAMES)
@scenario
async def test_a_name_is_never_a_field(env: Env, name: str) -> None:
    """Inside the server the new id stands in an expression, where "$checkpoint_id" would be a field."""
    store = env.open()
    await chain(store, 2, "source", values=lambda n: {"x": n, "big": LARGE})
    await store.call("copy_thread", "source", name)
    assert await state(store, name) == await state(store, "source")
    await store.call("copy_thread", name, "and back")
    assert await state(store, "and back") == await state(store, "source")


@scenario
async def test_a_target_that_exists_is_refused(env: Env) -> None:
    store = env.open()
    await fill(store, "source")
    await chain(store, 1, "target", values=lambda _: {"x": "precious", "big": LARGE})
    before = env.raw_bytes()
    with pytest.raises(RetentionRefusedError, match="exists already"):
        await store.call("copy_thread", "source", "target")
    assert env.raw_bytes() == before
    await store.call("copy_thread", "source", "target", overwrite=True)
    assert await state(store, "target") == await state(store, "source")
    assert (await store.call("check")).findings == ()


@scenario
async def test_a_copy_lives_its_own_life(env: Env) -> None:
    """Both go on, one is pruned, the other deleted; values that both refer to are each one's own."""
    store = env.open()
    await fill(store, "source")
    await store.call("copy_thread", "source", "target")
    wanted = await state(store, "source")
    for thread in ("source", "target"):
        head = await store.get(config(thread))
        new = checkpoint(20, {"x": thread, **head.checkpoint["channel_values"]})
        await store.put(head.config, new, metadata(20), {"x": 99})
    await store.call("prune", ["target"], grace=0)
    assert [item for item in await state(store, "source") if item[1]["id"] != checkpoint_id(20)] == wanted
    await store.delete_thread("source")
    assert len(await store.list(config("target"))) == 1
    assert (await env.open().get(config("target"))).checkpoint["channel_values"]["huge"] == "h" * 4_000_000


@scenario
async def test_a_pruned_thread_is_copied_with_its_lineage(env: Env) -> None:
    store = env.open()
    await fill(store, "source")
    await store.call("prune", ["source"])
    await store.call("copy_thread", "source", "target")
    assert await state(store, "target") == await state(store, "source")
    hidden = {"hidden_at": {"$ne": None}}
    rows = env.raw["docstore_checkpoints"]
    assert rows.count_documents({"thread_id": "target", **hidden}) == rows.count_documents(
        {"thread_id": "source", **hidden}
    )
    assert ids(await store.list(config("target"))) == ids(await store.list(config("source")))


@pytest.mark.kinds(PYMONGO)
@scenario
async def test_a_copied_thread_has_the_stamp_of_its_copy(env: Env) -> None:
    """It does not expire with its source."""
    store = env.open(ttl=1000)
    await fill(store, "source")
    old = {"$set": {"active_at": store.saver._state.ttl.stamp(_seconds_ago(900))}}
    for name in COLLECTIONS:
        env.raw[f"docstore_{name}"].update_many({"thread_id": "source"}, old)
    await store.call("copy_thread", "source", "target")
    stamps = {
        document["active_at"]
        for name in COLLECTIONS
        for document in env.raw[f"docstore_{name}"].find({"thread_id": "target"})
    }
    assert len(stamps) == 1
    assert min(stamps) > _seconds_ago(1)


def _seconds_ago(seconds: int) -> Any:
    return now() - timedelta(seconds=seconds)
