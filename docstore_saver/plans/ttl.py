"""Time to live: what the store says it is, and keeping a thread's documents of one age (docs/format.md, section 7)."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from docstore_saver import calls, queries
from docstore_saver.calls import COLLECTIONS, Document, Plan
from docstore_saver.documents import Place, now, require_format
from docstore_saver.state import Scope, Ttl

ASK_AGAIN_SECONDS = 600.0
"""A process that only puts meets no document that would tell it of a ttl, so it asks now and then."""


def adopt(scope: Scope) -> Plan[Ttl | None]:
    """Read the store's ttl; a saver without one of its own takes it over."""
    rows = yield queries.settings()
    for row in rows:
        require_format(row)
    seconds = rows[0]["ttl"] if rows else None
    stored = Ttl(seconds) if seconds is not None else None
    scope.state.ttl = scope.state.ttl or stored
    scope.state.ttl_read = time.monotonic()
    return stored


def refresh(scope: Scope) -> Plan[None]:
    """Follow what the store's ttl has become, whatever this saver was told when it was made."""
    rows = yield queries.settings()
    scope.state.ttl_read = time.monotonic()
    for row in rows:
        require_format(row)
        scope.state.ttl = Ttl(row["ttl"]) if row["ttl"] is not None else None


def notice(scope: Scope, document: Document) -> Plan[None]:
    """Another saver may have switched the ttl on since this one asked."""
    if document["active_at"] is not None and scope.state.ttl is None:
        yield from adopt(scope)


def stamp(scope: Scope) -> datetime | None:
    """The `active_at` of what is written now."""
    return scope.state.ttl.stamp(now()) if scope.state.ttl else None


def is_over(scope: Scope, document: Document) -> bool:
    """Whether a checkpoint's time to live has passed, though the server may not have removed it yet."""
    require_format(document)
    ttl = scope.state.ttl
    return ttl is not None and ttl.is_over(document["active_at"], now())


def keep_alive(scope: Scope, place: Place, *, is_root: bool) -> Plan[datetime | None]:
    """Lift the thread's documents to the current step of its ttl, once a step, and answer the step.

    Values first and checkpoints last, so that what a checkpoint needs never expires before it. A document that may
    already be on its way out is left alone: a thread that starts anew must not bring half of its old self back.
    """
    if time.monotonic() - scope.state.ttl_read > ASK_AGAIN_SECONDS:
        yield from refresh(scope)
    ttl = scope.state.ttl
    if ttl is None:
        return None
    stamp = ttl.stamp(now())
    thread = (place.tenant, place.thread_id)
    if scope.state.stamps.get(thread) == stamp:
        return stamp
    age = timedelta(seconds=ttl.seconds if is_root else ttl.seconds + ttl.grace)
    older = queries.older_stamp(place, now() - age, stamp)
    for collection in reversed(COLLECTIONS):
        yield calls.update_many(collection, older, {"$set": {"active_at": stamp}})
    scope.state.stamps.put(thread, stamp)
    return stamp
