"""Reads what a thread consists of, without its state."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from docstore_saver import thread_queries
from docstore_saver.calls import Document, Plan
from docstore_saver.documents import require_format
from docstore_saver.lineage import Key, Row, Through
from docstore_saver.plans import heads, landing
from docstore_saver.state import Scope

_CORES = 100
"""Checkpoints whose versions are read at a time."""


@dataclass(slots=True)
class Survey:
    """The checkpoints of a thread; those of a copy that is not finished stand apart."""

    tenant: str
    thread_id: str
    rows: dict[Key, Row] = field(default_factory=dict)
    unfinished: dict[Key, Row] = field(default_factory=dict)

    def ids(self, keys: Iterable[Key]) -> list[str]:
        return thread_queries.checkpoint_keys(self.tenant, self.thread_id, keys)


def survey(tenant: str, thread_id: str) -> Plan[Survey]:
    """All checkpoints of a thread, in pages."""
    found = Survey(tenant, thread_id)
    # Neighbours mostly agree; a thread of many checkpoints must not hold a copy of each list.
    shared: dict[frozenset[str], frozenset[str]] = {}
    last: Document | None = None
    while True:
        page: list[Document] = yield thread_queries.rows(tenant, thread_id, last)
        unfinished = yield from landing.unfinished(tenant, page)
        for document in page:
            require_format(document)
            row = _row(document, shared)
            (found.unfinished if landing.of(document) in unfinished else found.rows)[row.key] = row
        if len(page) < thread_queries.PAGE:
            return found
        last = page[-1]


def versioned(scope: Scope, found: Survey, borders: Through) -> Plan[dict[Key, AbstractSet[str]]]:
    """Of each border's channels those that have a version there; any other was first written later."""
    starts: dict[Key, AbstractSet[str]] = {}
    for keys in thread_queries.batches(found.ids(borders), _CORES):
        for document in (yield thread_queries.cores(found.tenant, found.thread_id, keys)):
            core = scope.codec.loads((yield from heads.open_field(scope, document, "core")))
            key = (document["checkpoint_ns"], document["checkpoint_id"])
            starts[key] = borders[key] & core["channel_versions"].keys()
    return starts


def _row(document: Document, shared: dict[frozenset[str], frozenset[str]]) -> Row:
    def share(names: Iterable[str]) -> frozenset[str]:
        names = frozenset(names)
        return shared.setdefault(names, names)

    kept = document.get("lineage")
    return Row(
        checkpoint_ns=document["checkpoint_ns"],
        checkpoint_id=document["checkpoint_id"],
        parent_id=document["parent_checkpoint_id"],
        parents=tuple((entry["checkpoint_ns"], entry["checkpoint_id"]) for entry in document["parents"]),
        run_id=document["run_id"],
        stored=share(document["stored"]),
        delta=share(entry["channel"] for entry in document["delta"]),
        channels={ref["channel"]: ref["value_id"] for ref in document["refs"] if ref["field"] == "channel"},
        fields={ref["field"]: ref["value_id"] for ref in document["refs"] if ref["field"] != "channel"},
        created_at=document["created_at"],
        active_at=document["active_at"],
        put_id=document["put_id"],
        size=document["size"],
        hidden_at=document.get("hidden_at"),
        lineage=None if kept is None else share(kept),
        landing=document.get("landing"),
        is_sealed="cipher" in document.get("core", {}),
    )
