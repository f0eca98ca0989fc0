"""Filters, sorts, projections and pipelines as plain dicts.

User strings stand only in places of the query language that take values (never in aggregation expressions), so a thread
called "$x" is just a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from docstore_saver.calls import Call, Document, aggregate, distinct, find, replace_one
from docstore_saver.documents import FORMAT, Place, checkpoint_key, part_key
from docstore_saver.facets import Digest, key_digest, wanted

NEWEST_FIRST = [("checkpoint_id", -1)]
SETTINGS_ID = "settings"
BEGINNING = datetime(1970, 1, 1)  # noqa: DTZ001  # as BSON has it: UTC without a zone
_COMMIT_FIELDS = {"_id": 0, "thread_id": 1, "value_id": 1}

# All that a child takes over from its parent.
_HEAD_FIELDS = {"metadata": 0}
_LINK_FIELDS = {
    "_id": 0,
    "format": 1,
    "thread_id": 1,
    "checkpoint_id": 1,
    "parent_checkpoint_id": 1,
    "stored": 1,
    "refs": 1,
    "hidden_at": 1,
    "landing": 1,
}


def thread(tenant: str, thread_id: str) -> Document:
    return {"tenant": tenant, "thread_id": thread_id}


def namespace(place: Place) -> Document:
    return {**thread(place.tenant, place.thread_id), "checkpoint_ns": place.checkpoint_ns}


def checkpoint(place: Place) -> Document:
    # The key fields stand beside the _id, so that a document in another's place is not taken for it.
    return {"_id": checkpoint_key(place), **namespace(place), "checkpoint_id": place.checkpoint_id}


def by_id(document: Document) -> Document:
    """The document that would be replaced by this one."""
    return {"_id": document["_id"], **thread(document["tenant"], document["thread_id"])}


def latest_or_one(place: Place, unlanded: Sequence[str]) -> Document:
    """One checkpoint by id, or every visible one of the namespace; none of an unfinished copy."""
    query: Document = {**namespace(place), "hidden_at": None}
    if place.checkpoint_id:
        query["checkpoint_id"] = place.checkpoint_id
    if unlanded:
        query["landing"] = {"$nin": list(unlanded)}
    return query


def checkpoint_with_writes(place: Place, unlanded: Sequence[str], writes_collection: str) -> Call:
    """One round trip for a checkpoint and its writes. Constants in the inner match let it use the index."""
    writes_of = {**namespace(place), "$expr": {"$eq": ["$checkpoint_id", "$$checkpoint_id"]}, "hidden_at": None}
    return aggregate(
        "checkpoints",
        [
            {"$match": latest_or_one(place, unlanded)},
            {"$sort": dict(NEWEST_FIRST)},
            {"$limit": 1},
            {
                "$lookup": {
                    "from": writes_collection,
                    "let": {"checkpoint_id": "$checkpoint_id"},
                    "pipeline": [{"$match": writes_of}],
                    "as": "writes",
                }
            },
        ],
    )


def checkpoint_alone(place: Place, unlanded: Sequence[str] = ()) -> Call:
    return find("checkpoints", latest_or_one(place, unlanded), sort=NEWEST_FIRST, limit=1)


def head(place: Place) -> Call:
    return find("checkpoints", checkpoint(place), projection=_HEAD_FIELDS, limit=1)


def whole_checkpoint(place: Place) -> Call:
    return find("checkpoints", checkpoint(place), limit=1)


def writes_of(place: Place) -> Call:
    return find("writes", {**namespace(place), "checkpoint_id": place.checkpoint_id, "hidden_at": None})


def writes_of_many(rows: Sequence[Document]) -> Call:
    """The writes of a page of checkpoints, in one command: one clause for each thread and namespace."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        where = (row["tenant"], row["thread_id"], row["checkpoint_ns"])
        places.setdefault(where, []).append(row["checkpoint_id"])
    clauses = [
        {**namespace(Place(*where)), "checkpoint_id": {"$in": ids}, "hidden_at": None} for where, ids in places.items()
    ]
    return find("writes", clauses[0] if len(clauses) == 1 else {"$or": clauses})


def commits(tenant: str, landings: Iterable[tuple[str, str]]) -> Call:
    """The commit documents of copies, each as (thread_id, landing)."""
    keys = [part_key(Place(tenant, thread_id, ""), landing, 0) for thread_id, landing in landings]
    return find("values", {"_id": {"$in": keys}, "tenant": tenant, "field": "copy"}, projection=_COMMIT_FIELDS)


def namespaces(tenant: str, thread_id: str) -> Call:
    return distinct("checkpoints", "checkpoint_ns", thread(tenant, thread_id))


def parts(tenant: str, wanted: Sequence[tuple[str, str, int]]) -> Call:
    """Parts of values, each as (thread_id, value_id, n)."""
    keys = [part_key(Place(tenant, thread_id, ""), value_id, n) for thread_id, value_id, n in wanted]
    threads = sorted({thread_id for thread_id, _, _ in wanted})
    which = threads[0] if len(threads) == 1 else {"$in": threads}
    return find("values", {"_id": {"$in": keys}, "tenant": tenant, "thread_id": which})


def value_heads(place: Place, value_ids: Iterable[str]) -> Document:
    keys = [part_key(place, value_id, 0) for value_id in value_ids]
    return {"_id": {"$in": keys}, **thread(place.tenant, place.thread_id)}


def older_stamp(place: Place, oldest: datetime, stamp: datetime) -> Document:
    """What has no stamp (it was written before the ttl was known), or an older one that is not `oldest`."""
    ages = [{"active_at": None}, {"active_at": {"$gt": oldest, "$lt": stamp}}]
    return {**thread(place.tenant, place.thread_id), "$or": ages}


def facet_clauses(filter: Mapping[Any, Any], digests: list[Digest], indexed: frozenset[str]) -> list[Document]:
    """What the server can decide of a metadata filter; empty where it can decide nothing."""
    if not digests:
        return []
    known = [digest.name for digest in digests]
    clauses: list[Document] = []
    for key, facets in wanted(filter, digests).items():
        clauses.append({"$or": [{"facets": {"$in": facets}}, {"facets_by": {"$nin": known}}]})
        if key in indexed:
            # null finds the rows that were written without this key's index
            clauses.append({f"indexed.{key_digest(key)}": {"$in": [*facets, None]}})
    return clauses


# Delta history: the links between checkpoints, and the writes along them.


def links(place: Place, newest: str | None, limit: int) -> Call:
    """A page of links, newest first, from `newest` on; hidden checkpoints are part of a chain."""
    query = namespace(place)
    if newest is not None:
        query["checkpoint_id"] = {"$lte": newest}
    return find("checkpoints", query, projection=_LINK_FIELDS, sort=NEWEST_FIRST, limit=limit)


def links_by_id(place: Place, ids: Sequence[str]) -> Call:
    return find("checkpoints", {**namespace(place), "checkpoint_id": {"$in": list(ids)}}, projection=_LINK_FIELDS)


def ancestors(place: Place, start: str, channel: str, collection: str, depth: int) -> Call:
    """The ancestors from `start` on that hold no value of the channel, nearest first, `depth` of them at most.

    `maxDepth` bounds what the server keeps in memory, and `$unwind` right behind keeps the array from being built.
    """
    return aggregate(
        "checkpoints",
        [
            {"$match": checkpoint(place)},
            {"$project": {"_id": 1}},
            {
                "$graphLookup": {
                    "from": collection,
                    "startWith": {"$literal": start},
                    "connectFromField": "parent_checkpoint_id",
                    "connectToField": "checkpoint_id",
                    "as": "ancestor",
                    "maxDepth": depth - 1,
                    "depthField": "depth",
                    "restrictSearchWithMatch": {**namespace(place), "stored": {"$ne": channel}},
                }
            },
            {"$unwind": "$ancestor"},
            {
                "$project": {
                    "_id": 0,
                    "depth": "$ancestor.depth",
                    "format": "$ancestor.format",
                    "checkpoint_id": "$ancestor.checkpoint_id",
                    "parent_checkpoint_id": "$ancestor.parent_checkpoint_id",
                }
            },
            {"$sort": {"depth": 1}},
        ],
    )


def hidden_writes(documents: Sequence[Document]) -> Call:
    """Which of these writes, all of one thread, are stored and hidden."""
    query = {**thread(documents[0]["tenant"], documents[0]["thread_id"]), "hidden_at": {"$ne": None}}
    ids = [document["_id"] for document in documents]
    return find("writes", {**query, "_id": {"$in": ids}}, projection={"lineage": 1})


def delta_writes(place: Place, ids: Sequence[str], channels: Sequence[str]) -> Call:
    query = {**namespace(place), "checkpoint_id": {"$in": list(ids)}, "channel": {"$in": list(channels)}}
    return find("writes", query)


def page(query: Document, limit: int) -> Call:
    """A page of checkpoints, newest first."""
    return find("checkpoints", query, sort=NEWEST_FIRST, limit=limit)


def settings() -> Call:
    return find("values", {"_id": SETTINGS_ID}, limit=1)


def ttl_settings(seconds: int | None, since: datetime | None) -> Call:
    settings = {"_id": SETTINGS_ID, "format": FORMAT, "ttl": seconds, "ttl_since": since}
    return replace_one("values", {"_id": SETTINGS_ID}, settings)
