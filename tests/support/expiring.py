"""What tests of expiry share: a ttl that no server acts on while a test runs, and documents older than it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from docstore_saver.calls import COLLECTIONS
from docstore_saver.documents import now
from docstore_saver.state import Ttl
from support.builders import chain
from support.env import Env
from support.maintained import stored
from support.stores import Store

TTL = 10_000_000
OVER = timedelta(seconds=Ttl(TTL).expire_after_seconds + 60)
"""An age at which a server would remove a thread."""
LARGE = "y" * 20_000


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


def indexes(env: Env) -> list[int | None]:
    """`expireAfterSeconds` of the TTL index of each collection."""
    found = (raw(env, name).index_information().get("ttl", {}) for name in COLLECTIONS)
    return [index.get("expireAfterSeconds") for index in found]


def ttl_of(env: Env) -> int | None:
    settings = raw(env, "values").find_one({"_id": "settings"})
    return settings["ttl"] if settings else None


def stamps(env: Env) -> set[Any]:
    return {document["active_at"] for document in stored(env)}
