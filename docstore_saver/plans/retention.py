"""Deleting what is no longer wanted."""

from __future__ import annotations

from docstore_saver import calls, queries
from docstore_saver.calls import COLLECTIONS, Plan
from docstore_saver.state import Scope


def delete_thread(scope: Scope, tenant: str, thread_id: str) -> Plan[None]:
    """Checkpoints first, then what they refer to: a reader in between finds less, never half."""
    for collection in COLLECTIONS:
        yield calls.delete_many(collection, queries.thread(tenant, thread_id))
    scope.state.forget_thread(tenant, thread_id)
