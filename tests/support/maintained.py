"""What tests of maintenance share: lists of threads, and documents that are older than they are."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from docstore_saver.calls import COLLECTIONS
from docstore_saver.documents import now
from docstore_saver.reports import ThreadInfo
from support.env import Env
from support.stores import Store

AGO = timedelta(hours=3)
"""Longer than any grace here."""


async def infos(store: Store, **arguments: Any) -> list[ThreadInfo]:
    """`threads()` of either face."""
    if store.is_async:
        return [info async for info in store.saver.athreads(**arguments)]
    return list(store.saver.threads(**arguments))


def documents(env: Env, **query: Any) -> dict[str, list[dict[str, Any]]]:
    """The stored documents by collection, without the settings."""
    wanted = {**query, "_id": {"$ne": "settings"}}
    return {name: list(env.raw[f"docstore_{name}"].find(wanted)) for name in COLLECTIONS}


def stored(env: Env, **query: Any) -> list[dict[str, Any]]:
    """All of them in one list, in the order of their ids."""
    rows = [document for some in documents(env, **query).values() for document in some]
    return sorted(rows, key=lambda document: document["_id"])


def counts(env: Env, **query: Any) -> dict[str, int]:
    return {name: len(some) for name, some in documents(env, **query).items()}


def make_old(env: Env, thread: str = "t", age: timedelta = AGO) -> None:
    """As if everything in a thread had been written, hidden and touched so long ago."""
    time = now() - age
    for document in stored(env, thread_id=thread):
        old: dict[str, datetime] = {name: time for name in ("created_at", "touched_at") if name in document}
        if document.get("hidden_at"):
            old["hidden_at"] = time
        for name in COLLECTIONS:
            env.raw[f"docstore_{name}"].update_one({"_id": document["_id"]}, {"$set": old})
