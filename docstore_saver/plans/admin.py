"""Preparing a store: its indexes, its time to live, and whether it is ours at all."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from docstore_saver import calls
from docstore_saver.calls import COLLECTIONS, CollectionName, Document, Plan
from docstore_saver.dialects import INDEX_CONFLICT_CODES, UNAUTHORIZED_CODES
from docstore_saver.documents import now
from docstore_saver.errors import ConfigurationError, StorageError
from docstore_saver.state import Scope, Ttl

logger = logging.getLogger("docstore_saver")

TTL_INDEX = "ttl"


def setup(scope: Scope) -> Plan[None]:
    """Make what is missing; may run any number of times, from any number of processes.

    A role that may not create indexes can still use a store that was prepared before.

    Raises:
        ConfigurationError: the collections belong to another saver.
    """
    yield from _require_ours(scope)
    yield from _settle_ttl(scope)
    for collection in COLLECTIONS:
        yield from _create(collection, _indexes(scope, collection))


def _require_ours(scope: Scope) -> Plan[None]:
    """Our documents carry `format`; those of other savers would be neither seen nor safe."""
    first = calls.find("checkpoints", {}, sort=[("_id", 1)], limit=1)
    for document in (yield first):
        if "format" not in document:
            raise ConfigurationError(
                f"The collection {scope.names['checkpoints']!r} holds documents of {_maker(document)}. Choose another "
                "collection_prefix= or database=. `migrate` (coming in a later release) copies threads from one saver "
                "to another."
            )


def _maker(document: Document) -> str:
    if {"checkpoint_ns", "checkpoint", "metadata"} <= document.keys():
        return "langgraph-checkpoint-mongodb (MongoDBSaver)"
    return "another application"


def _settle_ttl(scope: Scope) -> Plan[None]:
    """Without a ttl of its own the saver takes the store's; with one, the store takes the saver's."""
    try:
        rows = yield calls.list_indexes("checkpoints")
    except StorageError as error:
        if error.code not in UNAUTHORIZED_CODES:
            raise
        return
    found = next((row["expireAfterSeconds"] for row in rows if row["name"] == TTL_INDEX), None)
    if scope.state.ttl is None:
        scope.state.ttl = Ttl.from_index(found) if found is not None else None
    elif found is None:
        yield from _switch_on(scope.state.ttl)
    elif found != scope.state.ttl.expire_after_seconds:
        yield from _change(scope, found, scope.state.ttl.expire_after_seconds)


def _switch_on(ttl: Ttl) -> Plan[None]:
    """Give older documents a stamp before the index exists, so that a thread expires as a whole."""
    for collection in reversed(COLLECTIONS):
        yield calls.update_many(collection, {"active_at": None}, {"$set": {"active_at": ttl.stamp(now())}})


def _change(scope: Scope, old: int, new: int) -> Plan[None]:
    """At no moment may a value expire before the checkpoint that needs it."""
    for collection in COLLECTIONS if new < old else reversed(COLLECTIONS):
        if scope.dialect.modify_index:
            yield calls.modify_index(collection, TTL_INDEX, expire_after_seconds=new)
        else:
            yield calls.drop_index(collection, TTL_INDEX)


def _create(collection: CollectionName, models: Sequence[Document]) -> Plan[None]:
    try:
        yield calls.create_indexes(collection, models)
    except StorageError as error:
        if error.code in UNAUTHORIZED_CODES:
            logger.warning("This role may not create indexes on %s; going on without.", collection)
        elif error.code in INDEX_CONFLICT_CODES:
            yield from _one_by_one(collection, models)
        else:
            raise


def _one_by_one(collection: CollectionName, models: Sequence[Document]) -> Plan[None]:
    """An index exists in another form: keep it, make the others, and say so."""
    for model in models:
        try:
            yield calls.create_indexes(collection, [model])
        except StorageError as error:
            if error.code not in INDEX_CONFLICT_CODES:
                raise
            logger.warning("Index %r of %s exists in another form and is kept: %s", model["name"], collection, error)


def _indexes(scope: Scope, collection: CollectionName) -> list[Document]:
    models: list[Document] = {
        "checkpoints": [
            _unique("tenant", "thread_id", "checkpoint_ns", "checkpoint_id"),
            {"name": "newest", "keys": [("tenant", 1), ("checkpoint_id", -1)]},
            {"name": "run", "keys": [("tenant", 1), ("run_id", 1)]},
            *(_facet(key) for key in sorted(scope.indexed)),
        ],
        "writes": [
            _unique("tenant", "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx"),
            _interrupts(scope.dialect.partial_index),
        ],
        "values": [_unique("tenant", "thread_id", "value_id", "n")],
    }[collection]
    if scope.state.ttl:
        seconds = scope.state.ttl.expire_after_seconds
        models.append({"name": TTL_INDEX, "keys": [("active_at", 1)], "expireAfterSeconds": seconds})
    return models


def _unique(*fields: str) -> Document:
    return {"name": "key", "keys": [(field, 1) for field in fields], "unique": True}


def _facet(key: str) -> Document:
    return {"name": f"facet_{key}", "keys": [("tenant", 1), (f"indexed.{key}", 1), ("checkpoint_id", -1)]}


def _interrupts(partial: bool) -> Document:
    if partial:
        return {
            "name": "interrupt",
            "keys": [("tenant", 1), ("checkpoint_id", -1)],
            "partialFilterExpression": {"channel": "__interrupt__"},
        }
    return {"name": "interrupt", "keys": [("tenant", 1), ("channel", 1), ("checkpoint_id", -1)]}
