"""What a new checkpoint takes over from its parent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from docstore_saver import queries
from docstore_saver.calls import Document, Plan
from docstore_saver.codec import Typed, unpack_channels
from docstore_saver.documents import (
    Place,
    Reference,
    checkpoint_context,
    now,
    place_of,
    references,
    require_format,
    version_text,
)
from docstore_saver.errors import IncompleteCheckpointError, ThreadExpiredError
from docstore_saver.plans import ttl, values
from docstore_saver.state import Head, Scope

NO_HEAD = Head({}, {}, {}, 0.0)


def head_of(scope: Scope, parent: Place) -> Plan[Head]:
    """The parent's head: from the cache, else one lean read; an empty one where the parent is not stored.

    Raises:
        ThreadExpiredError: the store has a ttl and the parent, which this process saw before, is gone.
    """
    known = scope.state.heads.get(parent)
    if known is not None and not _may_have_expired(scope, known):
        return known
    rows = yield queries.head(parent)
    if rows:
        yield from ttl.notice(scope, rows)
    if not rows or _is_expired(scope, rows[0]):
        if known is not None:
            raise ThreadExpiredError
        return NO_HEAD
    core = yield from open_field(scope, rows[0], "core")
    inline = yield from open_field(scope, rows[0], "values")
    return remember(scope, rows[0], scope.codec.loads(core)["channel_versions"], unpack_channels(inline))


def remember(scope: Scope, document: Document, versions: Mapping[str, Any], inline: Mapping[str, Typed]) -> Head:
    """Keep what children of this checkpoint will need."""
    head = Head(
        refs={ref.channel: ref for ref in references(document) if ref.field == "channel"},
        inline={name: (version_text(versions.get(name)), typed) for name, typed in inline.items()},
        delta={entry["channel"]: entry["steps"] for entry in document["delta"]},
        seen=time.monotonic(),
    )
    scope.state.heads.put(place_of(document), head)
    return head


def open_field(scope: Scope, document: Document, field: str) -> Plan[Typed]:
    """A checkpoint's `core`, `values` or `metadata`, wherever it lies; its seal here is checked in either case."""
    typed = open_payload(scope, document, field)
    spilled = spilled_field(document, field)
    if spilled is None:
        return typed
    thread_id = document["thread_id"]
    fetched = yield from values.load(scope, document["tenant"], [(thread_id, spilled)], values.as_stored)
    return fetched[thread_id, spilled.value_id]


def open_payload(scope: Scope, document: Document, field: str) -> Typed:
    """Check the seal of a field and answer what lies in the document itself: nothing, for one that was moved out."""
    require_format(document)
    if field not in document:
        raise IncompleteCheckpointError(
            f"The checkpoint {document['checkpoint_id']!r} is kept only for its descendants; its {field} are gone."
        )
    return scope.codec.open(document[field], checkpoint_context(document, field))


def spilled_field(document: Document, field: str) -> Reference | None:
    return next((ref for ref in references(document) if ref.field == field), None)


def _may_have_expired(scope: Scope, head: Head) -> bool:
    limit = scope.state.ttl
    return limit is not None and time.monotonic() - head.seen > limit.grace


def _is_expired(scope: Scope, document: Document) -> bool:
    """Whether the server may already be taking the thread apart."""
    limit = scope.state.ttl
    return limit is not None and limit.is_going(document["active_at"], now())
