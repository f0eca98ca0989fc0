"""check: finds checkpoints that cannot be restored whole, and what nothing refers to; repairs both."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import timedelta

from docstore_saver import calls, thread_queries
from docstore_saver.calls import Document, Plan
from docstore_saver.documents import now
from docstore_saver.lineage import Key, Row
from docstore_saver.plans import garbage, landing, retention
from docstore_saver.plans.survey import Survey, survey, versioned
from docstore_saver.reports import Finding, Removed
from docstore_saver.state import Scope

Lost = dict[Key, str]
"""Checkpoints that cannot be restored, and why."""


def check_thread(scope: Scope, tenant: str, thread_id: str, grace: timedelta, *, repair: bool) -> Plan[list[Finding]]:
    """Look at one thread; with `repair`, remove what cannot be restored and what is left over."""
    cutoff = now() - grace
    found = yield from survey(tenant, thread_id)
    whole_values = yield from _whole_values(found)
    torn = yield from _torn_writes(found, whole_values)
    lost = yield from _lost(scope, found, whole_values, torn)
    findings = [_incomplete(found, key, why, repair=repair) for key, why in sorted(lost.items())]
    if repair:
        for some in thread_queries.batches(write["_id"] for write in torn):
            yield calls.delete_many("writes", thread_queries.ids(tenant, thread_id, some))
        # Hidden as of long ago: nobody can resume what cannot be read.
        yield from retention.hide(found, lost.keys(), cutoff, dry_run=False)
    findings += _abandoned(found, repair=repair)
    removed = yield from retention.sweep(scope, found, cutoff, dry_run=not repair)
    removed += Removed(checkpoints=-len(lost) if repair else 0)
    if removed.writes or removed.values or removed.checkpoints > 0:
        findings.append(_left_over(found, removed, repair=repair))
    return findings


def _whole_values(found: Survey) -> Plan[set[str]]:
    """The values of which every part is there."""
    whole: set[str] = set()
    behind: str | None = ""
    while behind is not None:
        values, behind = yield from garbage.next_values(found, behind)
        for parts in values:
            if [part["n"] for part in parts] == list(range(parts[0]["parts"])):
                whole.add(parts[0]["value_id"])
    return whole


def _torn_writes(found: Survey, whole_values: AbstractSet[str]) -> Plan[list[Document]]:
    """Writes whose value is gone."""
    torn: list[Document] = []
    last: Document | None = None
    while True:
        page: list[Document] = yield thread_queries.writes(found.tenant, found.thread_id, last)
        torn += [write for write in page if write.get("ref") and write["ref"]["value_id"] not in whole_values]
        if len(page) < thread_queries.PAGE:
            return torn
        last = page[-1]


def _lost(scope: Scope, found: Survey, whole_values: AbstractSet[str], torn: Iterable[Document]) -> Plan[Lost]:
    lost: Lost = {}
    for key, row in found.rows.items():
        if row.is_visible and not row.value_ids() <= whole_values:
            lost[key] = f"{len(row.value_ids() - whole_values)} of its stored values are missing"
    for write in torn:
        key = (write["checkpoint_ns"], write["checkpoint_id"])
        if key in found.rows and found.rows[key].is_visible and not write.get("hidden_at"):
            lost.setdefault(key, "the value of one of its pending writes is missing")
    breaks = yield from _breaks(scope, found, whole_values, torn)
    for key, row in found.rows.items():
        channels = breaks.get(key, set()) & (row.delta - row.stored)
        if row.is_visible and channels:
            lost.setdefault(key, f"what {sorted(channels)} are rebuilt from is missing")
    return lost


def _breaks(
    scope: Scope, found: Survey, whole_values: AbstractSet[str], torn: Iterable[Document]
) -> Plan[dict[Key, set[str]]]:
    """For each checkpoint the channels whose history cannot be had whole behind it."""
    rows = found.rows
    known = frozenset().union(*(row.delta for row in rows.values()))
    gaps = {key: known - row.stored for key, row in rows.items() if row.parent_id and row.parent_key not in rows}
    bad = yield from versioned(scope, found, {key: channels for key, channels in gaps.items() if channels})
    lacking: dict[Key, set[str]] = {key: _missing_seeds(row, whole_values) for key, row in rows.items()}
    for write in torn:
        lacking.setdefault((write["checkpoint_ns"], write["checkpoint_id"]), set()).add(write["channel"])
    return _handed_down(found, {key: set(channels) for key, channels in bad.items()}, lacking)


def _handed_down(found: Survey, bad: dict[Key, set[str]], lacking: dict[Key, set[str]]) -> dict[Key, set[str]]:
    """What is broken behind a checkpoint, or at it, is broken behind its children, up to one that stores it anew."""
    children: dict[Key | None, list[Key]] = {}
    for key, row in found.rows.items():
        children.setdefault(row.parent_key, []).append(key)
    waiting = list(found.rows)
    while waiting:
        key = waiting.pop()
        inherited = (bad.get(key, set()) - found.rows[key].stored) | lacking[key]
        for child in children.get(key, ()):
            if inherited - bad.get(child, set()):
                bad.setdefault(child, set()).update(inherited)
                waiting.append(child)
    return bad


def _missing_seeds(row: Row, whole_values: AbstractSet[str]) -> set[str]:
    """The channels that are stored here, but whose value is gone."""
    gone = {channel for channel, value_id in row.channels.items() if value_id not in whole_values}
    if row.fields.get("values", "") not in {"", *whole_values}:
        gone |= row.stored - row.channels.keys()
    if row.lineage is not None:
        gone |= row.stored - row.lineage
    return gone


def _incomplete(found: Survey, key: Key, why: str, *, repair: bool) -> Finding:
    done = "It was removed." if repair else "check(repair=True) removes it; the one before it is then the latest."
    return Finding(
        kind="incomplete",
        thread_id=found.thread_id,
        checkpoint_ns=key[0],
        checkpoint_id=key[1],
        message=f"The checkpoint cannot be restored: {why}. {done}",
        repaired=repair,
    )


def _abandoned(found: Survey, *, repair: bool) -> list[Finding]:
    copies = sorted({row.landing for row in found.unfinished.values() if row.landing})
    return [
        Finding(
            kind="unfinished copy",
            thread_id=found.thread_id,
            checkpoint_ns=None,
            checkpoint_id=None,
            message=f"A copy to this thread, begun {landing.started(name)} UTC, was never finished. Nobody sees it; "
            "check(repair=True) removes it when grace is over, and copying again replaces it.",
            repaired=repair,
        )
        for name in copies
    ]


def _left_over(found: Survey, removed: Removed, *, repair: bool) -> Finding:
    what = f"{max(removed.checkpoints, 0)} hidden checkpoints, {removed.writes} writes and {removed.values} values"
    verb = "were removed" if repair else "are of no use any more; check(repair=True) or sweep() removes them"
    return Finding(
        kind="left over",
        thread_id=found.thread_id,
        checkpoint_ns=None,
        checkpoint_id=None,
        message=f"{what} ({removed.bytes} bytes) {verb}.",
        repaired=repair,
    )
