"""Time to live: what the store says it is, and keeping a thread's documents of one age (docs/format.md, section 7)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from docstore_saver import calls, queries
from docstore_saver.calls import COLLECTIONS, Document, Plan
from docstore_saver.documents import Place, now, require_format
from docstore_saver.state import ASK_AGAIN, Scope, Ttl


def adopt(scope: Scope) -> Plan[Ttl | None]:
    """Read the store's ttl; a saver without one of its own takes it over."""
    stored = None
    for row in (yield from _settings(scope)):
        stored = _of(row)
    if scope.state.ttl in (None, stored):
        scope.state.ttl = stored
    return stored


def refresh(scope: Scope) -> Plan[None]:
    """Follow what the store's ttl has become, whatever this saver was told when it was made."""
    for row in (yield from _settings(scope)):
        scope.state.ttl = _of(row)


def _settings(scope: Scope) -> Plan[list[Document]]:
    rows: list[Document] = yield queries.settings()
    scope.state.ttl_read = time.monotonic()
    for row in rows:
        require_format(row)
    return rows


def _of(settings: Document) -> Ttl | None:
    if settings["ttl"] is None:
        return None
    return Ttl(settings["ttl"], settings["ttl_since"])


def notice(scope: Scope, documents: Iterable[Document]) -> Plan[None]:
    """What was read may tell of a ttl that another saver switched on; and one that is known may have been changed."""
    if scope.state.ttl is None:
        if any(document["active_at"] is not None for document in documents):
            yield from adopt(scope)
    elif _may_have_changed(scope):
        yield from refresh(scope)


def _may_have_changed(scope: Scope) -> bool:
    return time.monotonic() - scope.state.ttl_read > ASK_AGAIN.total_seconds()


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
    if _may_have_changed(scope):
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
