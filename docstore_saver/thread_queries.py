"""What retention asks of whole threads: lean pages in the order of an index, and batches of ids.

A page goes on behind the last document of the one before, so nothing stays open on the server between two pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from docstore_saver.calls import Call, CollectionName, Document, aggregate, delete_many, distinct, find, update_many
from docstore_saver.documents import Place, checkpoint_key, part_key
from docstore_saver.queries import BEGINNING, thread

PAGE = 1000
BATCH = 1000
"""Ids in one filter."""
MOST_MERGED = 20_000
VALUES_PAGE = 4000
"""Parts: more than the largest value has, which keeps a value's parts on one page."""

RunsCollection = Literal["checkpoints", "writes"]

_ROW_FIELDS = [
    *("format", "thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "parents", "run_id", "put_id"),
    *("stored", "delta.channel", "refs.field", "refs.channel", "refs.value_id", "core.cipher", "size"),
    *("created_at", "active_at", "hidden_at", "lineage", "landing"),
]
_WRITE_FIELDS = [
    *("checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "ref.value_id", "run_id", "size"),
    *("created_at", "hidden_at", "read_by"),
]
_PART_FIELDS = ["value_id", "n", "parts", "field", "size", "touched_at", "created_at"]


def _only(fields: Sequence[str]) -> Document:
    return dict.fromkeys(fields, 1)


def _behind(last: Document | None, *fields: str) -> Document:
    """The documents behind `last` in the order of these fields."""
    if last is None:
        return {}
    clauses = [
        {**{name: last[name] for name in fields[:at]}, fields[at]: {"$gt": last[fields[at]]}}
        for at in range(len(fields))
    ]
    return {"$or": clauses}


def rows(tenant: str, thread_id: str, last: Document | None) -> Call:
    order = ("checkpoint_ns", "checkpoint_id")
    query = {**thread(tenant, thread_id), **_behind(last, *order)}
    return find("checkpoints", query, projection=_only(_ROW_FIELDS), sort=[(name, 1) for name in order], limit=PAGE)


def writes(tenant: str, thread_id: str, last: Document | None) -> Call:
    order = ("checkpoint_ns", "checkpoint_id", "task_id", "idx")
    query = {**thread(tenant, thread_id), **_behind(last, *order)}
    return find("writes", query, projection=_only(_WRITE_FIELDS), sort=[(name, 1) for name in order], limit=PAGE)


def value_parts(tenant: str, thread_id: str, behind: str) -> Call:
    """The parts, without their bytes, of the values whose id comes behind this one."""
    query = {**thread(tenant, thread_id), "value_id": {"$gt": behind}}
    return find("values", query, projection=_only(_PART_FIELDS), sort=[("value_id", 1), ("n", 1)], limit=VALUES_PAGE)


def ids(tenant: str, thread_id: str, keys: Iterable[str]) -> Document:
    return {**thread(tenant, thread_id), "_id": {"$in": list(keys)}}


def batches(keys: Iterable[Any], size: int = BATCH) -> list[list[Any]]:
    every = list(keys)
    return [every[at : at + size] for at in range(0, len(every), size)]


def checkpoint_keys(tenant: str, thread_id: str, keys: Iterable[tuple[str, str]]) -> list[str]:
    return [checkpoint_key(Place(tenant, thread_id, *key)) for key in sorted(keys)]


def cores(tenant: str, thread_id: str, keys: Sequence[str]) -> Call:
    return find("checkpoints", ids(tenant, thread_id, keys), projection={"values": 0, "metadata": 0, "link": 0})


def shown_again(tenant: str, thread_id: str, keys: Sequence[str]) -> Call:
    """Those of these checkpoints that a put has shown again."""
    query = {**ids(tenant, thread_id, keys), "hidden_at": None}
    return find("checkpoints", query, projection={"checkpoint_ns": 1, "checkpoint_id": 1})


def hide(query: Document, time: datetime) -> Call:
    return update_many("checkpoints", {**query, "hidden_at": None}, {"$set": {"hidden_at": time}})


def old_heads(tenant: str, thread_id: str, value_ids: Iterable[str], cutoff: datetime) -> Call:
    """Delete the heads of values that no put has claimed since: the filter decides, not what was read before."""
    place = Place(tenant, thread_id, "")
    keys = [part_key(place, value_id, 0) for value_id in value_ids]
    return delete_many("values", {**ids(tenant, thread_id, keys), "touched_at": {"$lte": cutoff}})


def heads_of(tenant: str, thread_id: str, value_ids: Iterable[str]) -> Call:
    keys = [part_key(Place(tenant, thread_id, ""), value_id, 0) for value_id in value_ids]
    return find("values", ids(tenant, thread_id, keys), projection={"value_id": 1})


def parts_of(tenant: str, thread_id: str, value_ids: Sequence[str]) -> Document:
    return {**thread(tenant, thread_id), "value_id": {"$in": list(value_ids)}}


def threads_of_runs(collection: RunsCollection, tenant: str, run_ids: Sequence[str]) -> Call:
    return distinct(collection, "thread_id", {"tenant": tenant, "run_id": {"$in": list(run_ids)}})


def next_threads(
    collection: CollectionName, tenant: str, behind: str | None, limit: int, more: Document | None = None
) -> Call:
    """The threads of the next `limit` documents in the order of thread ids; at least one, where there is one."""
    wanted = {"$gte": ""} if behind is None else {"$gt": behind}
    return aggregate(
        collection,
        [
            {"$match": {"tenant": tenant, "thread_id": wanted, **(more or {})}},
            {"$sort": {"tenant": 1, "thread_id": 1}},
            {"$limit": limit},
            {"$group": {"_id": "$thread_id", "count": {"$sum": 1}}},
        ],
    )


def newest(query: Document, limit: int) -> Call:
    projection = {"thread_id": 1, "checkpoint_id": 1}
    return find("checkpoints", query, projection=projection, sort=[("checkpoint_id", -1)], limit=limit)


def sums(tenant: str, thread_ids: Sequence[str]) -> list[Call]:
    """For some threads: their visible checkpoints, all their checkpoints, their writes, their values."""
    of_threads = {"tenant": tenant, "thread_id": {"$in": list(thread_ids)}}
    total = {"_id": "$thread_id", "count": {"$sum": 1}, "size": {"$sum": "$size"}}
    seen = {
        "_id": "$thread_id",
        "count": {"$sum": 1},
        "namespaces": {"$addToSet": "$checkpoint_ns"},
        "last": {"$max": "$created_at"},
        "newest": {"$max": "$checkpoint_id"},
        "active_at": {"$max": "$active_at"},
    }
    heads = {"$sum": {"$cond": [{"$eq": ["$n", 0]}, 1, 0]}}
    return [
        aggregate("checkpoints", [{"$match": {**of_threads, "hidden_at": None}}, {"$group": seen}]),
        aggregate("checkpoints", [{"$match": of_threads}, {"$group": {**total, "landing": {"$max": "$landing"}}}]),
        aggregate("writes", [{"$match": of_threads}, {"$group": total}]),
        aggregate("values", [{"$match": of_threads}, {"$group": {**total, "count": heads}}]),
    ]


def sizes(query: Document, collection: CollectionName, limit: int) -> Call:
    return find(collection, query, projection={"size": 1}, sort=[("_id", 1)], limit=limit)


def ids_behind(query: Document, last: str) -> Document:
    return {"_id": {**query.get("_id", {}), "$gt": last}}


def merge_copy(
    collection: CollectionName, query: Document, target_key: str, changes: Document, names: Mapping[Any, str]
) -> Call:
    """Copy documents inside the server; what stands behind the thread's part of an `_id` does not depend on it."""
    length = len(target_key)
    rest = {"$substrBytes": ["$_id", length, {"$subtract": [{"$strLenBytes": "$_id"}, length]}]}
    fields: Document = {name: {"$literal": value} for name, value in changes.items()}
    if collection == "values":
        # A copied value is as safe from collection as a new one; only heads carry the time.
        fields["touched_at"] = {"$cond": [{"$eq": ["$n", 0]}, "$$NOW", "$$REMOVE"]}
    stages: list[Document] = [
        {"$match": query},
        {"$set": {"_id": {"$concat": [{"$literal": target_key}, rest]}, **fields}},
        {
            "$merge": {
                "into": names[collection],
                "whenMatched": "keepExisting" if collection == "checkpoints" else "replace",
            }
        },
    ]
    return aggregate(collection, stages)


def is_hidden_before(cutoff: datetime) -> Document:
    """Hidden, and not only kept for descendants. The lower bound lets the partial index `hidden` serve it."""
    return {"hidden_at": {"$gt": BEGINNING, "$lte": cutoff}, "lineage": None}
