"""expire: what a TTL index does, thread by thread, for stores that have none (docs/format.md, section 7)."""

from __future__ import annotations

from datetime import datetime, timedelta

from docstore_saver import calls, queries, thread_queries
from docstore_saver.calls import COLLECTIONS, Plan
from docstore_saver.documents import now
from docstore_saver.plans import ttl
from docstore_saver.plans.overview import SCAN
from docstore_saver.state import Scope


def expired_threads(scope: Scope, tenant: str, behind: str) -> Plan[tuple[list[str], datetime | None]]:
    """The next threads with a checkpoint that the server would remove, and up to which `active_at` it would."""
    yield from ttl.refresh(scope)
    limit = scope.state.ttl
    if limit is None:
        return [], None
    cutoff = now() - timedelta(seconds=limit.expire_after_seconds)
    old = {"active_at": {"$lte": cutoff}}
    groups = yield thread_queries.next_threads("checkpoints", tenant, behind, SCAN, old)
    return sorted(group["_id"] for group in groups), cutoff


def expire_thread(tenant: str, thread_id: str, cutoff: datetime) -> Plan[bool]:
    """Remove a thread of which everything is over. What a new start writes meanwhile has a younger stamp, and stays."""
    of_thread = queries.thread(tenant, thread_id)
    old = {"active_at": {"$lte": cutoff}}
    alive = {**of_thread, "hidden_at": None, "$or": [{"active_at": None}, {"active_at": {"$gt": cutoff}}]}
    if (yield calls.find("checkpoints", alive, projection={"_id": 1}, limit=1)):
        return False
    # Checkpoints last: nobody sees them any more, and by them a second run finds what the first one left.
    for collection in reversed(COLLECTIONS):
        yield calls.delete_many(collection, {**of_thread, **old})
    # What this process knows of the thread stays: a run that goes on in it has to learn that its thread is over.
    return True
