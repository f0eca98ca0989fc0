"""get_tuple and list."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, PendingWrite, writes_sort_key

from docstore_saver import facets, queries
from docstore_saver.calls import LARGE_BYTES, Compute, Document, Group, Plan
from docstore_saver.codec import Typed, unpack_channels
from docstore_saver.dialects import TOO_MUCH_CODES
from docstore_saver.documents import (
    Place,
    Reference,
    place_of,
    references,
    require_format,
    write_context,
)
from docstore_saver.errors import StorageError, UnsupportedByServerError
from docstore_saver.plans import heads, landing, ttl, values
from docstore_saver.state import Scope

PAGE = 200
MOST_NAMESPACES = 200
"""MongoDB merges this many index ranges in order; over it, it sorts in memory."""
_ROW_BYTES = 512
"""Decoding a document costs something even where its payload is small."""

MakeConfig = Callable[[Place], Any]
ValueOf = Callable[[Reference], Any]


def get_tuple(scope: Scope, place: Place, config: MakeConfig) -> Plan[CheckpointTuple | None]:
    """One checkpoint by id, or the latest of the namespace."""
    unlanded: list[str] = []
    while (document := (yield from _fetch(scope, place, unlanded))) is not None:
        if not (yield from landing.unfinished(place.tenant, [document])):
            break
        unlanded.append(document["landing"])
    if document is None:
        return None
    yield from ttl.notice(scope, [document])
    if ttl.is_over(scope, document):
        return None
    decoded = yield from values.load(scope, place.tenant, row_values(document), partial(decode, scope))
    tuple_, inline = yield Compute(
        partial(assemble, scope, document, lambda ref: decoded[place.thread_id, ref.value_id], config),
        large=tuple_bytes(document) > LARGE_BYTES,
    )
    heads.remember(scope, document, tuple_.checkpoint["channel_versions"], inline)
    return tuple_  # type: ignore[no-any-return]  # a plan is sent what its step answers


def _fetch(scope: Scope, place: Place, unlanded: Sequence[str]) -> Plan[Document | None]:
    """A checkpoint document with its writes under "writes"."""
    if scope.dialect.lookup_pipeline:
        try:
            rows = yield queries.checkpoint_with_writes(place, unlanded, scope.names["writes"])
        except UnsupportedByServerError:
            scope.state.dialect = replace(scope.dialect, lookup_pipeline=False)
        except StorageError as error:
            if error.code not in TOO_MUCH_CODES:
                raise
        else:
            return rows[0] if rows else None
    if place.checkpoint_id:
        rows, writes = yield Group([queries.checkpoint_alone(place, unlanded), queries.writes_of(place)])
        return {**rows[0], "writes": writes} if rows else None
    rows = yield queries.checkpoint_alone(place, unlanded)
    if not rows:
        return None
    writes = yield queries.writes_of(place_of(rows[0]))
    return {**rows[0], "writes": writes}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The arguments of list, checked. Without `thread_id` the whole tenant is listed."""

    tenant: str
    thread_id: str | None
    checkpoint_ns: str | None
    checkpoint_id: str | None
    before: str | None
    filter: Mapping[Any, Any] | None
    limit: int | None


class Listing:
    """A list in progress. `next()` is a plan for the next tuple; most of them need no I/O.

    Pages are cut by checkpoint_id, newest first, and nothing stays open on the server between them. Rows wait as they
    were stored and are decoded one by one, so a page of large states is never in memory decoded.
    """

    def __init__(self, scope: Scope, query: ListQuery, config: MakeConfig) -> None:
        self._scope, self._query, self._config = scope, query, config
        self._left = query.limit
        self._rows: deque[Document] = deque()
        self._groups: deque[tuple[int, list[values.Located]]] = deque()
        self._typed: dict[tuple[str, str], Typed] = {}
        self._ready = 0
        self._namespaces: list[str] | None = None
        self._upper: str | None = None
        self._passed: list[str] = []
        self._more = True

    def next(self) -> Plan[CheckpointTuple | None]:
        while self._left is None or self._left > 0:
            if not self._rows and not (yield from self._read_page()):
                return None
            if not self._rows:
                continue
            if not self._ready:
                yield from self._read_values()
            self._ready -= 1
            document = self._rows.popleft()
            value_of = partial(self._value_of, document["thread_id"])
            tuple_, _ = yield Compute(
                partial(assemble, self._scope, document, value_of, self._config),
                large=tuple_bytes(document) > LARGE_BYTES,
            )
            if facets.matches(self._query.filter, tuple_.metadata):
                if self._left is not None:
                    self._left -= 1
                return tuple_  # type: ignore[no-any-return]  # a plan is sent what its step answers
        return None

    def _value_of(self, thread_id: str, reference: Reference) -> Any:
        # Decoded anew for each row: two tuples must not share one mutable value.
        return decode(self._scope, reference, self._typed[thread_id, reference.value_id])

    def _read_values(self) -> Plan[None]:
        self._ready, wanted = self._groups.popleft()
        self._typed.clear()
        if wanted:
            self._typed = yield from values.load(self._scope, self._query.tenant, wanted, values.as_stored)

    def _read_page(self) -> Plan[bool]:
        """Fetch the next page; False where there is none. The page may turn out empty (expired rows)."""
        if not self._more:
            return False
        limit = PAGE if self._left is None else min(PAGE, self._left)
        rows = yield from self._find(limit)
        self._more = len(rows) == limit
        if not rows:
            return False
        last = rows[-1]["checkpoint_id"]
        tied = [row["_id"] for row in rows if row["checkpoint_id"] == last]
        self._passed = self._passed + tied if last == self._upper else tied
        self._upper = last
        unlanded = yield from landing.unfinished(self._query.tenant, rows)
        yield from ttl.notice(self._scope, rows)
        rows = [row for row in rows if landing.of(row) not in unlanded and not ttl.is_over(self._scope, row)]
        if rows:
            yield from self._attach_writes(rows)
        self._rows.extend(rows)
        self._groups.extend(values.groups(row_values(row) for row in rows))
        return True

    def _attach_writes(self, rows: list[Document]) -> Plan[None]:
        by_place: dict[Place, list[Document]] = {place_of(row): [] for row in rows}
        for write in (yield queries.writes_of_many(rows)):
            by_place[place_of(write)].append(write)
        for row in rows:
            row["writes"] = by_place[place_of(row)]

    def _find(self, limit: int) -> Plan[list[Document]]:
        """The next rows in order. A thread without a namespace is the merge of its namespaces."""
        query = self._page_query()
        if self._query.thread_id is None or self._query.checkpoint_ns is not None:
            rows: list[Document] = yield queries.page(query, limit)
            return rows
        if self._namespaces is None:
            self._namespaces = sorted((yield queries.namespaces(self._query.tenant, self._query.thread_id)))
        names = self._namespaces
        chunks = [names[at : at + MOST_NAMESPACES] for at in range(0, len(names), MOST_NAMESPACES)]
        pages = yield Group([queries.page({**query, "checkpoint_ns": {"$in": chunk}}, limit) for chunk in chunks])
        merged = sorted((row for rows in pages for row in rows), key=lambda row: row["checkpoint_id"], reverse=True)
        return merged[:limit]

    def _page_query(self) -> Document:
        asked = self._query
        query: Document = {"tenant": asked.tenant, "hidden_at": None}
        if asked.thread_id is not None:
            query["thread_id"] = asked.thread_id
        if asked.checkpoint_ns is not None:
            query["checkpoint_ns"] = asked.checkpoint_ns
        bounds: Document = {}
        if asked.checkpoint_id is not None:
            bounds["$eq"] = asked.checkpoint_id
        if asked.before is not None:
            bounds["$lt"] = asked.before
        if self._upper is not None:
            bounds["$lte"] = self._upper
            query["_id"] = {"$nin": self._passed}
        if bounds:
            query["checkpoint_id"] = bounds
        digest = self._scope.codec.digest
        clauses = queries.facet_clauses(asked.filter or {}, [digest] if digest else [], self._scope.indexed)
        if clauses:
            query["$and"] = clauses
        return query


def row_values(document: Document) -> list[values.Located]:
    """All values that a tuple is made of."""
    refs = references(document)
    refs += [Reference.from_document(write["ref"]) for write in document["writes"] if write["ref"]]
    return [(document["thread_id"], ref) for ref in refs]


def tuple_bytes(document: Document) -> int:
    """Roughly, how much there is to decode."""
    rows = [document, *document["writes"]]
    return sum(row_bytes(row) for row in rows)


def row_bytes(document: Document) -> int:
    refs = document["refs"] if "refs" in document else [document["ref"]]
    return int(_ROW_BYTES + document["size"] + sum(ref["size"] for ref in refs if ref))


def assemble(
    scope: Scope, document: Document, value_of: ValueOf, config: MakeConfig
) -> tuple[CheckpointTuple, dict[str, Typed]]:
    """A CheckpointTuple from a document, its writes and its values; and its inline values as they are stored."""
    refs = references(document)
    fields = {ref.field: ref for ref in refs if ref.field != "channel"}

    def read(name: str) -> Any:
        typed = heads.open_payload(scope, document, name)
        if name in fields:
            return value_of(fields[name])
        return unpack_channels(typed) if name == "values" else scope.codec.loads(typed)

    checkpoint: Checkpoint = read("core")
    inline: dict[str, Typed] = read("values")
    small = {channel: scope.codec.loads(typed) for channel, typed in inline.items()}
    stored = {ref.channel: value_of(ref) for ref in refs if ref.field == "channel"}
    checkpoint["channel_values"] = {**small, **stored}
    place, parent = place_of(document), document["parent_checkpoint_id"]
    tuple_ = CheckpointTuple(
        config=config(place),
        checkpoint=checkpoint,
        metadata=read("metadata"),
        parent_config=config(place.at(parent)) if parent else None,
        pending_writes=_pending_writes(scope, document["writes"], value_of),
    )
    return tuple_, inline


def _pending_writes(scope: Scope, writes: list[Document], value_of: ValueOf) -> list[PendingWrite]:
    """Without the writes of a call that was cut short: LangGraph would take the task for done and lose the rest."""
    found = Counter(write["task_id"] for write in writes if write["idx"] >= 0)
    pending = []
    for write in sorted_writes(writes):
        # Decoded in either case: a changed document must not pass for one that was cut short.
        decoded = read_write(scope, write, value_of)
        if write["idx"] < 0 or found[write["task_id"]] >= write["of"]:
            pending.append(decoded)
    return pending


def sorted_writes(writes: list[Document]) -> list[Document]:
    return sorted(writes, key=lambda write: writes_sort_key(write["task_path"], write["task_id"], write["idx"]))


def read_write(scope: Scope, write: Document, value_of: ValueOf) -> tuple[str, str, Any]:
    """A PendingWrite. The seal is checked also where the value lies elsewhere: it binds the reference."""
    require_format(write)
    typed = scope.codec.open(write["value"], write_context(write))
    value = value_of(Reference.from_document(write["ref"])) if write["ref"] else scope.codec.loads(typed)
    return write["task_id"], write["channel"], value


def decode(scope: Scope, reference: Reference, typed: Typed) -> Any:
    """A consumer for `values.load`."""
    return unpack_channels(typed) if reference.field == "values" else scope.codec.loads(typed)
