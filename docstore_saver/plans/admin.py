"""Preparing a store: its indexes, its time to live, and whether it is ours at all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT

from docstore_saver import calls, queries
from docstore_saver.calls import COLLECTIONS, Call, CollectionName, Document, Plan
from docstore_saver.dialects import CANNOT_CREATE_CODES, INDEX_CONFLICT_CODES, INDEX_NOT_FOUND_CODES, UNAUTHORIZED_CODES
from docstore_saver.documents import now
from docstore_saver.errors import ConfigurationError, StorageError
from docstore_saver.facets import key_digest
from docstore_saver.plans import ttl
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
    old = yield from ttl.adopt(scope)
    yield from _settle_ttl(scope, old)
    for collection in COLLECTIONS:
        yield from _create(collection, _indexes(scope, collection))


def set_ttl(scope: Scope, new: Ttl | None) -> Plan[None]:
    """Change the store's ttl, or switch it off: then nothing expires any more, whatever its age."""
    yield from ttl.refresh(scope)
    if new is not None:
        old, scope.state.ttl = scope.state.ttl, new
        yield from _settle_ttl(scope, old)
        for collection in COLLECTIONS:
            yield from _create(collection, _indexes(scope, collection))
        return
    for collection in COLLECTIONS:
        yield from _if_it_exists(scope, calls.drop_index(collection, TTL_INDEX))
    yield queries.ttl_settings(None, None)
    scope.state.ttl = None
    for collection in COLLECTIONS:
        yield calls.update_many(collection, {"active_at": {"$gt": queries.BEGINNING}}, {"$set": {"active_at": None}})


def _if_it_exists(scope: Scope, call: Call) -> Plan[None]:
    """Change or drop an index; a store that takes no TTL index has none."""
    try:
        yield call
    except StorageError as error:
        # mongomock gives its errors no code.
        if scope.dialect.persistent and error.code not in INDEX_NOT_FOUND_CODES:
            raise


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


def _settle_ttl(scope: Scope, old: Ttl | None) -> Plan[None]:
    """The store takes the saver's ttl."""
    new = scope.state.ttl
    if new is None or new == old:
        return
    if old is None:
        yield from _stamp_all(new)
    else:
        yield from _change(scope, old, new)
    scope.state.ttl = replace(new, since=old.since if old else now())
    yield queries.ttl_settings(new.seconds, scope.state.ttl.since)


def _stamp_all(new: Ttl) -> Plan[None]:
    """Give all documents one stamp before the index exists, so that a thread expires as a whole.

    Those too that have one: of a ttl that was switched off, from a process that had not taken notice of that yet.
    """
    stamp = new.stamp(now())
    for collection in reversed(COLLECTIONS):
        others = {"active_at": {"$ne": stamp}, "_id": {"$ne": queries.SETTINGS_ID}}
        yield calls.update_many(collection, others, {"$set": {"active_at": stamp}})


def _change(scope: Scope, old: Ttl, new: Ttl) -> Plan[None]:
    """At no moment may a value expire before the checkpoint that needs it."""
    for collection in COLLECTIONS if new.seconds < old.seconds else reversed(COLLECTIONS):
        change = calls.modify_index(collection, TTL_INDEX, expire_after_seconds=new.expire_after_seconds)
        if not scope.dialect.modify_index:
            change = calls.drop_index(collection, TTL_INDEX)
        yield from _if_it_exists(scope, change)


def _create(collection: CollectionName, models: Sequence[Document]) -> Plan[None]:
    try:
        yield calls.create_indexes(collection, models)
    except StorageError as error:
        if error.code in UNAUTHORIZED_CODES:
            logger.warning("This role may not create indexes on %s; going on without.", collection)
        elif error.code in INDEX_CONFLICT_CODES | CANNOT_CREATE_CODES:
            yield from _one_by_one(collection, models)
        else:
            raise


def _one_by_one(collection: CollectionName, models: Sequence[Document]) -> Plan[None]:
    """An index exists in another form: keep it, make the others, and say so."""
    for model in models:
        try:
            yield calls.create_indexes(collection, [model])
        except StorageError as error:
            if error.code in CANNOT_CREATE_CODES and model["name"] == TTL_INDEX:
                logger.warning(
                    "%s takes no TTL index on this store: %s. Call expire() from a timer.", collection, error
                )
                continue
            if error.code not in INDEX_CONFLICT_CODES:
                raise
            logger.warning("Index %r of %s exists in another form and is kept: %s", model["name"], collection, error)


def _indexes(scope: Scope, collection: CollectionName) -> list[Document]:
    models: list[Document] = {
        "checkpoints": [
            _unique("tenant", "thread_id", "checkpoint_ns", "checkpoint_id"),
            {"name": "newest", "keys": [("tenant", 1), ("checkpoint_id", -1)]},
            _runs(scope),
            *_hidden(scope),
            *(_facet(key) for key in sorted(scope.indexed)),
        ],
        "writes": [
            _unique("tenant", "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx"),
            _runs(scope),
            _interrupts(scope),
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
    name = key_digest(key)
    return {"name": f"facet_{name}", "keys": [("tenant", 1), (f"indexed.{name}", 1), ("checkpoint_id", -1)]}


def _runs(scope: Scope) -> Document:
    model: Document = {"name": "run", "keys": [("tenant", 1), ("run_id", 1)]}
    if scope.dialect.partial_index:
        model["partialFilterExpression"] = {"run_id": {"$gt": ""}}
    return model


def _hidden(scope: Scope) -> list[Document]:
    """For sweeps; where it would hold every checkpoint they do without."""
    if not scope.dialect.partial_index:
        return []
    partial = {"hidden_at": {"$gt": queries.BEGINNING}}
    return [{"name": "hidden", "keys": [("tenant", 1), ("thread_id", 1)], "partialFilterExpression": partial}]


def _interrupts(scope: Scope) -> Document:
    interrupt = WRITES_IDX_MAP[INTERRUPT]
    if scope.dialect.partial_index:
        keys = [("tenant", 1), ("checkpoint_id", -1)]
        return {"name": "interrupt", "keys": keys, "partialFilterExpression": {"idx": interrupt}}
    return {"name": "interrupt", "keys": [("tenant", 1), ("idx", 1), ("checkpoint_id", -1)]}
