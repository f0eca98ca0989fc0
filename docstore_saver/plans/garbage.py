"""Removes the writes and values of a thread that nothing needs any more (docs/format.md, sections 5 and 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from docstore_saver import calls, thread_queries
from docstore_saver.calls import Document, Plan
from docstore_saver.lineage import Key, Row, Through, flowing
from docstore_saver.plans.survey import Survey
from docstore_saver.reports import Removed


@dataclass(slots=True)
class Verdict:
    """What is decided about a thread's checkpoints; what their writes and values are worth follows from it."""

    whole: dict[Key, Row]
    """Those that keep everything, and those of a copy that is not finished."""
    lineage: dict[Key, Row]
    """Those that stay only for their descendants, as they are when that is done."""
    passing: Through
    """The channels whose histories lead through a checkpoint."""
    children: Mapping[Key, Sequence[str]]
    cutoff: datetime
    """What was hidden, written or claimed after this is left alone."""
    deleted_runs: AbstractSet[str] = field(default_factory=frozenset)
    """Runs whose writes count as hidden (a dry run hides none)."""

    def needs(self, write: Document) -> bool:
        key = (write["checkpoint_ns"], write["checkpoint_id"])
        if key in self.whole or key in self.lineage:
            if self._is_hidden(write, key):
                is_needed = any(write["channel"] in self._flowing(key[0], child) for child in self._readers(write, key))
            else:
                is_needed = key in self.whole or write["channel"] in self.passing.get(key, ())
            if is_needed:
                return True
        # Of a checkpoint that is gone, or of one that may still come.
        return bool(write["created_at"] > self.cutoff)

    def _is_hidden(self, write: Document, key: Key) -> bool:
        hidden_at = write.get("hidden_at")
        is_of_deleted_run = write["run_id"] in self.deleted_runs and self.whole.get(key) is not None
        return is_of_deleted_run or (hidden_at is not None and hidden_at <= self.cutoff)

    def _readers(self, write: Document, key: Key) -> Sequence[str]:
        readers: Sequence[str] = write.get("read_by") or ()
        return readers if write.get("hidden_at") else self.children.get(key, ())

    def _flowing(self, namespace: str, child: str) -> AbstractSet[str]:
        key = (namespace, child)
        row = self.whole.get(key) or self.lineage.get(key)
        return flowing(row, self.passing, is_whole=key in self.whole) if row else frozenset()

    def value_ids(self) -> set[str]:
        used: set[str] = set()
        for row in (*self.whole.values(), *self.lineage.values()):
            used |= row.value_ids()
            if row.landing:
                used.add(row.landing)
        return used


def collect(found: Survey, verdict: Verdict, *, dry_run: bool) -> Plan[Removed]:
    """Delete what the verdict leaves over: writes first, since they refer to values."""
    used = verdict.value_ids()
    removed = yield from _writes(found, verdict, used, dry_run=dry_run)
    return removed + (yield from _values(found, verdict, used, dry_run=dry_run))


def _writes(found: Survey, verdict: Verdict, used: set[str], *, dry_run: bool) -> Plan[Removed]:
    removed = Removed()
    last: Document | None = None
    while True:
        page: list[Document] = yield thread_queries.writes(found.tenant, found.thread_id, last)
        doomed = []
        for write in page:
            if not verdict.needs(write):
                doomed.append(write)
            elif write.get("ref"):
                used.add(write["ref"]["value_id"])
        if doomed:
            removed += Removed(writes=len(doomed), bytes=sum(write["size"] for write in doomed))
        if doomed and not dry_run:
            # One that was written again since is another write.
            old = {"created_at": {"$lte": verdict.cutoff}}
            ids = thread_queries.ids(found.tenant, found.thread_id, [write["_id"] for write in doomed])
            yield calls.delete_many("writes", {**ids, **old})
        if len(page) < thread_queries.PAGE:
            return removed
        last = page[-1]


def _values(found: Survey, verdict: Verdict, used: AbstractSet[str], *, dry_run: bool) -> Plan[Removed]:
    removed = Removed()
    behind: str | None = ""
    while behind is not None:
        values, behind = yield from next_values(found, behind)
        doomed = {parts[0]["value_id"]: parts for parts in values if _is_garbage(parts, used, verdict.cutoff)}
        if not dry_run:
            for some in thread_queries.batches(doomed):
                for kept in (yield from _delete_values(found, some, verdict.cutoff)):
                    del doomed[kept]
        size = sum(part["size"] for parts in doomed.values() for part in parts)
        removed += Removed(values=len(doomed), bytes=size)
    return removed


def next_values(found: Survey, behind: str) -> Plan[tuple[list[list[Document]], str | None]]:
    """The next values, each as its parts without their bytes, and behind which to go on."""
    page: list[Document] = yield thread_queries.value_parts(found.tenant, found.thread_id, behind)
    values = [list(parts) for _, parts in groupby(page, itemgetter("value_id"))]
    if len(page) < thread_queries.VALUES_PAGE:
        return values, None
    if len(values) > 1:
        values.pop()  # the page may end within it
    return values, values[-1][0]["value_id"]


def _is_garbage(parts: list[Document], used: AbstractSet[str], cutoff: datetime) -> bool:
    """Whether nothing refers to a value and nobody may be about to; parts without a head are of no use at any age."""
    head = parts[0]
    time = head["touched_at"] if head["n"] == 0 else max(part["created_at"] for part in parts)
    return head["value_id"] not in used and time <= cutoff


def _delete_values(found: Survey, value_ids: Iterable[str], cutoff: datetime) -> Plan[set[str]]:
    """Heads first, by a filter that spares what a put has claimed since; answers those."""
    value_ids = list(value_ids)
    yield thread_queries.old_heads(found.tenant, found.thread_id, value_ids, cutoff)
    claimed = yield thread_queries.heads_of(found.tenant, found.thread_id, value_ids)
    spared = {document["value_id"] for document in claimed}
    gone = [value_id for value_id in value_ids if value_id not in spared]
    if gone:
        yield calls.delete_many("values", thread_queries.parts_of(found.tenant, found.thread_id, gone))
    return spared
