"""copy_thread: everything of a thread under another thread's id, seen all at once (docs/format.md, section 8).

Writes, then the values that they refer to, then checkpoints, which land unseen; then one document, the commit, shows
them. Copying reads a live
source without a lock, so before the commit it looks again: a source that lost something in between is copied anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from docstore_saver import calls, queries, thread_queries
from docstore_saver.calls import LARGE_BYTES, CollectionName, Compute, Document, DuplicateKeys, Plan
from docstore_saver.codec import EMPTY
from docstore_saver.documents import (
    Place,
    checkpoint_context,
    common_fields,
    now,
    part_context,
    part_key,
    thread_key,
    write_context,
)
from docstore_saver.errors import RetentionRefusedError, UnsupportedByServerError
from docstore_saver.lineage import Key, Row
from docstore_saver.plans import landing, retention, ttl
from docstore_saver.plans.survey import Survey, survey
from docstore_saver.plans.values import BATCH_BYTES
from docstore_saver.state import Scope

_ATTEMPTS = 5
_SIZES_PAGE = 1000

Seals: TypeAlias = dict[CollectionName, dict[str, Callable[[Document], list[Any]]]]
"""For each collection its sealed fields, with the context that each is bound to."""

_SEALS: Seals = {
    "checkpoints": {
        field: lambda document, field=field: checkpoint_context(document, field)  # type: ignore[misc]  # bound here
        for field in ("core", "values", "metadata", "link")
    },
    "writes": {"value": write_context},
    "values": {"data": part_context},
}


@dataclass(frozen=True, slots=True)
class _Copy:
    """One attempt."""

    tenant: str
    source: str
    target: str
    landing: str
    changes: dict[CollectionName, Document]
    """The fields of a copied document that differ from its source's, besides its _id."""

    @property
    def target_key(self) -> str:
        return thread_key(self.tenant, self.target)

    def new_id(self, old: str) -> str:
        return self.target_key + old[len(self.target_key) :]


def copy_thread(scope: Scope, tenant: str, source: str, target: str, *, overwrite: bool) -> Plan[None]:
    """Copy all namespaces with their whole chains. A source that does not exist copies nothing.

    Raises:
        RetentionRefusedError: the target exists and `overwrite` was not given, or it came into being meanwhile.
    """
    for _ in range(_ATTEMPTS):
        found = yield from survey(tenant, source)
        if not any(row.is_visible and not _is_over(scope, row) for row in found.rows.values()):
            return
        yield from _make_room(scope, tenant, target, overwrite=overwrite)
        copy = _new_copy(scope, tenant, source, target)
        yield from _copy_all(scope, copy, found)
        if (yield from _is_true(copy, found)):
            yield from _show(scope, copy)
            return
        unseen = {**queries.thread(tenant, target), "landing": copy.landing}
        yield calls.delete_many("checkpoints", unseen)
    raise RetentionRefusedError(
        f"The thread {source!r} lost checkpoints each time while it was copied, so nothing was copied. Copy it when "
        "no other operation deletes from it."
    )


def _is_over(scope: Scope, row: Row) -> bool:
    limit = scope.state.ttl
    return limit is not None and limit.is_over(row.active_at, now())


def _make_room(scope: Scope, tenant: str, target: str, *, overwrite: bool) -> Plan[None]:
    there = yield from survey(tenant, target)
    if there.rows and overwrite:
        yield from retention.delete_thread(scope, tenant, target)
    elif any(row.is_visible and not _is_over(scope, row) for row in there.rows.values()):
        raise RetentionRefusedError(
            f"The thread {target!r} exists already, so nothing was copied. Choose another id, delete it first, or "
            "pass overwrite=True."
        )
    elif there.rows or there.unfinished:
        # What an earlier copy left that was cut short, or a thread that is over.
        yield from retention.delete_thread(scope, tenant, target)


def _new_copy(scope: Scope, tenant: str, source: str, target: str) -> _Copy:
    time = now()
    common: Document = {"thread_id": target, "active_at": ttl.stamp(scope)}
    name = landing.new(time)
    changes: dict[CollectionName, Document] = {
        "values": common,
        "writes": common,
        "checkpoints": {**common, "landing": name},
    }
    return _Copy(tenant, source, target, name, changes)


def _copy_all(scope: Scope, copy: _Copy, found: Survey) -> Plan[None]:
    keys = found.ids(found.rows)
    if scope.dialect.merge and not scope.codec.seals and not any(row.is_sealed for row in found.rows.values()):
        try:
            yield from _on_server(scope, copy, keys)
        except UnsupportedByServerError:
            pass
        else:
            return
    for collection in ("writes", "values"):
        yield from _in_batches(scope, copy, collection, queries.thread(copy.tenant, copy.source))
    for some in thread_queries.batches(keys):
        yield from _in_batches(scope, copy, "checkpoints", thread_queries.ids(copy.tenant, copy.source, some))


def _on_server(scope: Scope, copy: _Copy, keys: list[str]) -> Plan[None]:
    for collection in ("writes", "values"):
        query = queries.thread(copy.tenant, copy.source)
        yield thread_queries.merge_copy(collection, query, copy.target_key, copy.changes[collection], scope.names)
    for some in thread_queries.batches(keys, thread_queries.MOST_MERGED):
        query = thread_queries.ids(copy.tenant, copy.source, some)
        yield thread_queries.merge_copy("checkpoints", query, copy.target_key, copy.changes["checkpoints"], scope.names)


def _in_batches(scope: Scope, copy: _Copy, collection: CollectionName, query: Document) -> Plan[None]:
    """A bounded number of bytes at a time; what is sealed to its thread is sealed anew."""
    last = ""
    while True:
        page = yield thread_queries.sizes({**query, **thread_queries.ids_behind(query, last)}, collection, _SIZES_PAGE)
        for some in _bounded(page):
            documents = yield calls.find(collection, thread_queries.ids(copy.tenant, copy.source, some))
            copied = []
            for document in documents:
                make = partial(_copied, scope, copy, collection, document)
                copied.append((yield Compute(make, large=scope.codec.binds and document["size"] > LARGE_BYTES)))
            if copied:
                yield from _insert(collection, copied)
        if len(page) < _SIZES_PAGE:
            return
        last = page[-1]["_id"]


def _bounded(page: Iterable[Document]) -> Iterable[list[str]]:
    some: list[str] = []
    size = 0
    for document in page:
        if some and size + document["size"] > BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append(document["_id"])
        size += document["size"]
    if some:
        yield some


def _copied(scope: Scope, copy: _Copy, collection: CollectionName, document: Document) -> Document:
    new = {**document, **copy.changes[collection], "_id": copy.new_id(document["_id"])}
    if "touched_at" in document:
        new["touched_at"] = now()
    for field, context in _SEALS[collection].items():
        if field in document and scope.codec.binds:
            typed = scope.codec.open(document[field], context(document))
            new[field] = scope.codec.seal(typed, context(new))
    return new


def _insert(collection: CollectionName, documents: list[Document]) -> Plan[None]:
    try:
        yield calls.insert_many(collection, documents)
    except DuplicateKeys as duplicates:
        # What a copy left that was cut short. A checkpoint is somebody else's; the look before the commit finds it.
        for at in duplicates.indexes if collection != "checkpoints" else ():
            yield calls.replace_one(collection, queries.by_id(documents[at]), documents[at])


def _is_true(copy: _Copy, before: Survey) -> Plan[bool]:
    """Whether the source still holds all that was read of it, and the target exactly that.

    Raises:
        RetentionRefusedError: the target has checkpoints of somebody else's.
    """
    after = yield from survey(copy.tenant, copy.source)
    there = yield from survey(copy.tenant, copy.target)
    if there.rows or any(row.landing != copy.landing for row in there.unfinished.values()):
        yield calls.delete_many("checkpoints", {**queries.thread(copy.tenant, copy.target), "landing": copy.landing})
        raise RetentionRefusedError(
            f"The thread {copy.target!r} came into being while it was copied to, so nothing was copied."
        )
    told = {key: _essence(row) for key, row in before.rows.items()}
    kept = {key: _essence(after.rows[key]) for key in told.keys() & after.rows.keys()}
    copied = {key: _essence(row) for key, row in there.unfinished.items()}
    return told == kept == copied


def _essence(row: Row) -> tuple[Key, str, object]:
    return row.key, row.put_id, row.lineage


def _show(scope: Scope, copy: _Copy) -> Plan[None]:
    yield calls.insert_one("values", _commit(scope, copy))
    scope.state.forget_thread(copy.tenant, copy.target)
    yield calls.update_many(
        "checkpoints",
        {**queries.thread(copy.tenant, copy.target), "landing": copy.landing},
        {"$set": {"landing": None}},
    )
    yield calls.delete_many("values", queries.by_id(_commit(scope, copy)))


def _commit(scope: Scope, copy: _Copy) -> Document:
    place = Place(copy.tenant, copy.target, "")
    time: datetime = landing.started(copy.landing)
    document: Document = {
        "_id": part_key(place, copy.landing, 0),
        **common_fields(place, copy.changes["values"]["active_at"]),
        "value_id": copy.landing,
        "n": 0,
        "parts": 1,
        "field": "copy",
        "channel": "",
        "version": "-",
        "created_at": time,
        "touched_at": time,
    }
    document["data"] = scope.codec.seal(EMPTY, part_context(document))
    document["size"] = len(document["data"]["data"])
    return document
