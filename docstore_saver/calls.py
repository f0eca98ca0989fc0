"""What a plan may yield, and what comes back.

A plan is a generator without I/O: it yields steps and is sent their results; errors are thrown into it. The runners
(`runners.py`) are the only code that knows a driver. The set of methods is small on purpose: every dialect must be
able to answer all of them.

| step | its result |
|---|---|
| `find`, `aggregate`, `list_indexes`, `distinct` | a list |
| `insert_one`, `insert_many` | None, or `DuplicateKeys` is raised |
| `replace_one`, `update_many` | the number of documents matched |
| `delete_many` | the number of documents deleted |
| `create_indexes`, `modify_index`, `drop_index` | None |
| `Group` | the results of its calls, in order; the async runner sends them together |
| `Compute` | what the function answers; the async runner takes large ones off the event loop |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

T = TypeVar("T")
Document: TypeAlias = dict[str, Any]
CollectionName = Literal["checkpoints", "writes", "values"]
COLLECTIONS: tuple[CollectionName, ...] = ("checkpoints", "writes", "values")

LARGE_BYTES = 64 * 1024
"""Work on more than this is noticed on an event loop (`Compute.large`)."""

# One reply may hold 16 MB; asking for all of it at once saves the getMore that the default first batch of 101 costs.
_ONE_REPLY = 100_000


@dataclass(frozen=True, slots=True)
class Call:
    """One command to one collection."""

    collection: CollectionName
    method: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Calls that do not depend on one another."""

    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class Compute:
    """Work for the processor: serialising, sealing, decoding."""

    function: Callable[[], Any]
    large: bool = False


Step: TypeAlias = Call | Group | Compute
Plan: TypeAlias = Generator[Step, Any, T]


class DuplicateKeys(Exception):  # noqa: N818  # an answer to a plan, which no user sees
    """Documents of an insert exist already; all others were inserted. `indexes` are their places in the call."""

    def __init__(self, indexes: Sequence[int]) -> None:
        super().__init__(f"{len(indexes)} documents exist already")
        self.indexes = tuple(indexes)


def find(
    collection: CollectionName,
    query: Document,
    *,
    projection: Document | None = None,
    sort: Sequence[tuple[str, int]] | None = None,
    limit: int = 0,
) -> Call:
    options: Document = {"batch_size": limit or _ONE_REPLY, "limit": limit}
    if projection is not None:
        options["projection"] = projection
    if sort is not None:
        options["sort"] = list(sort)
    return Call(collection, "find", (query,), options)


def aggregate(collection: CollectionName, pipeline: list[Document]) -> Call:
    return Call(collection, "aggregate", (pipeline,), {"batchSize": _ONE_REPLY})


def distinct(collection: CollectionName, key: str, query: Document) -> Call:
    return Call(collection, "distinct", (key, query))


def insert_one(collection: CollectionName, document: Document) -> Call:
    return Call(collection, "insert_one", (document,))


def insert_many(collection: CollectionName, documents: Sequence[Document]) -> Call:
    return Call(collection, "insert_many", (list(documents),), {"ordered": False})


def replace_one(collection: CollectionName, query: Document, document: Document, *, upsert: bool = True) -> Call:
    return Call(collection, "replace_one", (query, document), {"upsert": upsert})


def update_many(collection: CollectionName, query: Document, update: Document) -> Call:
    return Call(collection, "update_many", (query, update))


def delete_many(collection: CollectionName, query: Document) -> Call:
    return Call(collection, "delete_many", (query,))


def list_indexes(collection: CollectionName) -> Call:
    return Call(collection, "list_indexes")


def create_indexes(collection: CollectionName, models: Sequence[Document]) -> Call:
    """Each model: ``{"keys": [(field, direction), ...], "name": ..., **options}``."""
    return Call(collection, "create_indexes", (list(models),))


def modify_index(collection: CollectionName, name: str, *, expire_after_seconds: int) -> Call:
    return Call(collection, "modify_index", (name, expire_after_seconds))


def drop_index(collection: CollectionName, name: str) -> Call:
    return Call(collection, "drop_index", (name,))
