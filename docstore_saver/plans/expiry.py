"""expire: what a TTL index does, thread by thread, for stores that have none (docs/format.md, section 7)."""

from __future__ import annotations

from datetime import timedelta

from docstore_saver import calls, queries, thread_queries
from docstore_saver.calls import COLLECTIONS, Document, Plan
from docstore_saver.documents import now
from docstore_saver.plans import ttl
from docstore_saver.plans.overview import SCAN
from docstore_saver.state import Scope, Ttl


def expired_threads(scope: Scope, tenant: str, behind: str | None) -> Plan[tuple[list[str], Document]]:
    """The next threads with a checkpoint that the server would remove, and the filter for what it would."""
    yield from ttl.refresh(scope)
    limit = scope.state.ttl
    if limit is None:
        return [], {}
    old = _old(limit)
    groups = yield thread_queries.next_threads("checkpoints", tenant, behind, SCAN, old)
    return sorted(group["_id"] for group in groups), old


def _old(limit: Ttl) -> Document:
    cutoff = now() - timedelta(seconds=limit.expire_after_seconds)
    old: Document = {"active_at": {"$lte": cutoff}}
    # What has no stamp expires with the rest of its thread; no TTL index would ever remove it.
    return {"$or": [old, {"active_at": None}]} if limit.unstamped and limit.unstamped <= cutoff else old


def expire_thread(tenant: str, thread_id: str, old: Document) -> Plan[bool]:
    """Remove a thread of which everything is over. What a new start writes meanwhile has a younger stamp, and stays."""
    of_thread = queries.thread(tenant, thread_id)
    alive = {**of_thread, "hidden_at": None, "$nor": [old]}
    if (yield calls.find("checkpoints", alive, projection={"_id": 1}, limit=1)):
        return False
    # A process that has not taken notice of the ttl yet must not see half of it either. Checkpoints go last: by them a
    # second run finds what the first one left.
    yield calls.update_many("checkpoints", {**of_thread, **old, "hidden_at": None}, {"$set": {"hidden_at": now()}})
    for collection in reversed(COLLECTIONS):
        yield calls.delete_many(collection, {**of_thread, **old})
    # What this process knows of the thread stays: a run that goes on in it has to learn that its thread is over.
    return True
