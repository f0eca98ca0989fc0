"""Values of their own: stored in parts before the document that refers to them, fetched by reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias, TypeVar

from docstore_saver import calls, queries
from docstore_saver.calls import LARGE_BYTES, Call, Compute, Document, Group, Plan
from docstore_saver.codec import Typed
from docstore_saver.dialects import MiB
from docstore_saver.documents import (
    Place,
    Reference,
    Version,
    common_fields,
    now,
    part_context,
    part_key,
    random_id,
    require_format,
    version_text,
)
from docstore_saver.errors import IncompleteCheckpointError
from docstore_saver.plans import ttl
from docstore_saver.state import Scope

R = TypeVar("R")

Consume: TypeAlias = Callable[[Reference, Typed], R]
Loaded: TypeAlias = dict[tuple[str, str], R]
Located: TypeAlias = tuple[str, Reference]
"""A reference with the thread that it belongs to: copies of a thread share value_ids."""

# A command takes up to four times its bytes of memory (the parts, their BSON, the driver's message, the transport's
# buffer), so values share commands of 10 MB, and only one large value alone may fill a larger one.
BATCH_BYTES = 10 * MiB
MOST_BATCH_BYTES = 24 * MiB
FETCH_BYTES = 16 * MiB
FETCH_PARTS = 1000


class ValueBatch:
    """Stores values in as few commands as memory allows. `flush()` before the document that refers to them."""

    def __init__(self, scope: Scope, place: Place, active_at: datetime | None) -> None:
        self._scope, self._place, self._active_at = scope, place, active_at
        self._documents: list[Document] = []
        self._bytes = 0

    def add(self, field: str, channel: str, version: Version, typed: Typed) -> Plan[Reference]:
        """Cut the value, seal its parts and send what fills a command."""
        kind, data = typed
        part_bytes = self._scope.dialect.part_bytes
        reference = Reference(
            field, channel, version_text(version), random_id(), max(1, -(-len(data) // part_bytes)), len(data)
        )
        limit = min(MOST_BATCH_BYTES, max(BATCH_BYTES, len(data)))
        for n in range(reference.parts):
            chunk = data[n * part_bytes : (n + 1) * part_bytes] if reference.parts > 1 else data
            document = self._part(reference, n)
            seal = partial(self._scope.codec.seal, (kind, chunk), part_context(document))
            document["data"] = yield Compute(seal, large=self._scope.codec.seals and len(chunk) > LARGE_BYTES)
            document["size"] = len(document["data"]["data"])
            if self._documents and self._bytes + document["size"] > limit:
                yield from self.flush()
            self._documents.append(document)
            self._bytes += document["size"]
        return reference

    def flush(self) -> Plan[None]:
        documents, self._documents, self._bytes = self._documents, [], 0
        if documents:
            yield calls.insert_many("values", documents)
            heads = [document["value_id"] for document in documents if document["n"] == 0]
            self._scope.state.touch(self._place, heads)

    def _part(self, reference: Reference, n: int) -> Document:
        document = {
            "_id": part_key(self._place, reference.value_id, n),
            **common_fields(self._place, self._active_at),
            "value_id": reference.value_id,
            "n": n,
            "parts": reference.parts,
            "field": reference.field,
            "channel": reference.channel,
            "version": reference.version,
            "created_at": now(),
        }
        if n == 0:
            document["touched_at"] = document["created_at"]
        return document


def touch(scope: Scope, place: Place, references: Iterable[Reference]) -> Plan[set[str]]:
    """Claim values for a new checkpoint; answers the value_ids that are gone.

    A value that this process stored or touched lately is safe from collection for the collector's grace and costs no
    command (docs/format.md, section 5).
    """
    stale = {ref.value_id for ref in references if not scope.state.is_fresh(place, ref.value_id)}
    if not stale:
        return set()
    heads = queries.value_heads(place, sorted(stale))
    missing: set[str] = set()
    if (yield calls.update_many("values", heads, {"$set": {"touched_at": now()}})) < len(stale):
        found = yield calls.find("values", heads, projection={"value_id": 1})
        missing = stale - {document["value_id"] for document in found}
    scope.state.touch(place, stale - missing)
    return missing


def load(scope: Scope, tenant: str, wanted: Iterable[Located], consume: Consume[R]) -> Plan[Loaded[R]]:
    """Fetch values and hand each to `consume` as soon as it is whole; answers its results by (thread_id, value_id).

    Raises:
        IncompleteCheckpointError: a part is missing or is not the one that the reference means.
    """
    results, _ = yield from load_beside(scope, tenant, wanted, consume, ())
    return results


def load_beside(
    scope: Scope, tenant: str, wanted: Iterable[Located], consume: Consume[R], calls: Sequence[Call]
) -> Plan[tuple[Loaded[R], list[list[Document]]]]:
    """The same, with other reads in its first round trip; answers theirs too."""
    results: Loaded[R] = {}
    answers: list[list[Document]] | None = None
    pending: dict[tuple[str, str], dict[int, Document]] = {}
    unique = {(thread_id, reference.value_id): reference for thread_id, reference in wanted}
    for parts in _fetches(unique, scope.dialect.part_bytes):
        fetch = queries.parts(tenant, parts)
        if answers is None:
            documents, *answers = yield Group([fetch, *calls])
        else:
            documents = yield fetch
        if documents:
            yield from ttl.notice(scope, documents[:1])
        while documents:
            document = documents.pop()
            pending.setdefault((document["thread_id"], document["value_id"]), {})[document["n"]] = document
        for thread_id, value_id, n in parts:
            key, reference = (thread_id, value_id), unique[thread_id, value_id]
            if n == reference.parts - 1:
                join = partial(_join, scope, reference, pending.pop(key, {}), consume)
                results[key] = yield Compute(join, large=reference.size > LARGE_BYTES)
    if answers is None:
        answers = yield Group(calls)
    return results, answers


def as_stored(_: Reference, typed: Typed) -> Typed:
    """A consumer for `load` that decodes nothing."""
    return typed


def groups(rows: Iterable[Sequence[Located]]) -> Iterator[tuple[int, list[Located]]]:
    """Cut a sequence of rows into runs whose distinct values fit one fetch: (number of rows, their values)."""
    count, size = 0, 0
    unique: dict[tuple[str, str], Located] = {}
    for row in rows:
        new = {(thread_id, ref.value_id): (thread_id, ref) for thread_id, ref in row}
        more = sum(ref.size for key, (_, ref) in new.items() if key not in unique)
        if count and size + more > FETCH_BYTES:
            yield count, list(unique.values())
            count, size, unique = 0, 0, {}
            more = sum(ref.size for _, ref in new.values())
        count, size = count + 1, size + more
        unique.update(new)
    if count:
        yield count, list(unique.values())


def _fetches(unique: Mapping[tuple[str, str], Reference], part_bytes: int) -> Iterator[list[tuple[str, str, int]]]:
    """Parts to ask for at once, as (thread_id, value_id, n): one reply's worth."""
    parts: list[tuple[str, str, int]] = []
    size = 0
    for (thread_id, value_id), reference in unique.items():
        for n in range(reference.parts):
            part = min(part_bytes, reference.size)
            if parts and (size + part > FETCH_BYTES or len(parts) >= FETCH_PARTS):
                yield parts
                parts, size = [], 0
            parts.append((thread_id, value_id, n))
            size += part
    if parts:
        yield parts


def _join(scope: Scope, reference: Reference, documents: dict[int, Document], consume: Consume[R]) -> R:
    chunks: list[bytes] = []
    kind = ""
    for n in range(reference.parts):
        document = documents.pop(n, None)
        if document is None or not _is_meant(reference, document):
            raise IncompleteCheckpointError(
                f"Part {n + 1} of {reference.parts} of a stored value (field {reference.field!r}, channel "
                f"{reference.channel!r}) is missing. The state cannot be restored whole, so none is given. "
                "check(repair=True) removes checkpoints that cannot be completed."
            )
        require_format(document)
        kind, chunk = scope.codec.open(document["data"], part_context(document))
        chunks.append(chunk)
    whole = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    chunks.clear()
    return consume(reference, (kind, whole))


def _is_meant(reference: Reference, document: Document) -> bool:
    return all(document[name] == getattr(reference, name) for name in ("field", "channel", "version", "parts"))
