"""Deleting what is no longer wanted: hide first, sweep when grace is over (docs/format.md, section 8).

A run that resumed an older branch may store its next checkpoint long after it read its ancestors. So a checkpoint that
goes is hidden from readers at once, stays whole for `grace`, and is then removed, unless a checkpoint that stays has to
be rebuilt from it: then it becomes lineage.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta

from docstore_saver import calls, lineage, queries, thread_queries
from docstore_saver.calls import COLLECTIONS, Document, Group, Plan
from docstore_saver.documents import now
from docstore_saver.lineage import Key, Row
from docstore_saver.plans import garbage, landing
from docstore_saver.plans.garbage import Verdict
from docstore_saver.plans.survey import Survey, survey, versioned
from docstore_saver.policies import Keep
from docstore_saver.reports import Removed
from docstore_saver.state import Scope


def delete_thread(scope: Scope, tenant: str, thread_id: str) -> Plan[None]:
    """Checkpoints first, then what they refer to: a reader in between finds less, never half."""
    for collection in COLLECTIONS:
        yield calls.delete_many(collection, queries.thread(tenant, thread_id))
    scope.state.forget_thread(tenant, thread_id)


def delete_all(scope: Scope, tenant: str, thread_id: str, *, dry_run: bool) -> Plan[Removed]:
    """`delete_thread`, and what it takes away."""
    answers = yield Group(thread_queries.sums(tenant, [thread_id])[1:])
    rows, writes, values = (groups[0] if groups else {"count": 0, "size": 0} for groups in answers)
    if not dry_run:
        yield from delete_thread(scope, tenant, thread_id)
    size = rows["size"] + writes["size"] + values["size"]
    return Removed(checkpoints=rows["count"], writes=writes["count"], values=values["count"], bytes=size)


def prune(scope: Scope, tenant: str, thread_id: str, keep: Keep, grace: timedelta, *, dry_run: bool) -> Plan[Removed]:
    """Hide what `keep` does not name, and sweep what was hidden longer than `grace` ago."""
    moment = now()
    found = yield from survey(tenant, thread_id)
    going = {key for key in keep.going(found.rows.values(), moment) if found.rows[key].is_visible}
    yield from hide(found, going, moment, dry_run=dry_run)
    removed = yield from sweep(scope, found, moment if dry_run else moment - grace, dry_run=dry_run)
    return removed + Removed(hidden=len(going))


def delete_for_runs(
    scope: Scope, tenant: str, thread_id: str, runs: AbstractSet[str], grace: timedelta, *, dry_run: bool
) -> Plan[Removed]:
    """The same for the checkpoints of some runs, and for the writes that these left at checkpoints of other runs."""
    moment = now()
    found = yield from survey(tenant, thread_id)
    going = {key for key, row in found.rows.items() if row.is_visible and row.run_id in runs}
    if not dry_run:
        yield from _hide_writes(found, {key for key, row in found.rows.items() if row.is_visible} - going, runs, moment)
    yield from hide(found, going, moment, dry_run=dry_run)
    cutoff = moment if dry_run else moment - grace
    removed = yield from sweep(scope, found, cutoff, dry_run=dry_run, deleted_runs=runs if dry_run else frozenset())
    return removed + Removed(hidden=len(going))


def sweep_thread(scope: Scope, tenant: str, thread_id: str, grace: timedelta) -> Plan[Removed]:
    """Remove what was hidden, orphaned or left unused for longer than `grace`."""
    moment = now()
    found = yield from survey(tenant, thread_id)
    return (yield from sweep(scope, found, moment - grace, dry_run=False))


def sweep(
    scope: Scope,
    found: Survey,
    cutoff: datetime,
    *,
    dry_run: bool,
    deleted_runs: AbstractSet[str] = frozenset(),
) -> Plan[Removed]:
    """Remove what was hidden before `cutoff`, but for what the others are rebuilt from.

    May stop anywhere and run again: what is still needed never depends on what was already removed.
    """
    rows = found.rows
    going = {key for key, row in rows.items() if row.lineage is not None or _is_over(row, cutoff)}
    whole = rows.keys() - going
    passing = lineage.all_histories(rows, whole)
    starts = yield from versioned(scope, found, lineage.borders(rows, whole, passing))
    needed = lineage.walk(rows, starts, stop=whole.__contains__)
    kept = {key: replace(rows[key], lineage=rows[key].stored & needed[key]) for key in going if key in needed}
    changed = {key: row for key, row in kept.items() if row.lineage != rows[key].lineage}
    doomed = going - kept.keys()
    abandoned = {
        row.landing for row in found.unfinished.values() if row.landing and landing.started(row.landing) <= cutoff
    }
    removed = Removed(
        checkpoints=len(doomed),
        bytes=sum(rows[key].size for key in doomed),
        lineage=sum(rows[key].lineage is None for key in kept),
    )
    shown: set[Key] = set()
    if not dry_run:
        scope.state.forget_thread(found.tenant, found.thread_id)
        yield from _settle_copies(found, abandoned)
        yield from _keep_as_lineage(found, changed, cutoff)
        yield from _delete(found, doomed, cutoff)
        shown = yield from _shown_again(found, {*changed, *doomed})
    verdict = Verdict(
        whole={
            **{key: rows[key] for key in whole | shown},
            **{key: row for key, row in found.unfinished.items() if row.landing not in abandoned},
        },
        lineage={key: row for key, row in kept.items() if key not in shown},
        # By plain fields for what stays whole: a deleted run's write is kept where in doubt.
        passing={**passing, **{key: needed[key] for key in kept}},
        children=lineage.children(rows),
        cutoff=cutoff,
        deleted_runs=deleted_runs,
    )
    return removed + (yield from garbage.collect(found, verdict, dry_run=dry_run))


def _settle_copies(found: Survey, abandoned: AbstractSet[str]) -> Plan[None]:
    """Finish what a copy that was cut short left: one that is shown needs no commit, one that is not goes."""
    of_thread = queries.thread(found.tenant, found.thread_id)
    shown = sorted({row.landing for row in found.rows.values() if row.landing})
    if shown:
        yield calls.update_many("checkpoints", {**of_thread, "landing": {"$in": shown}}, {"$set": {"landing": None}})
        landed = {key: replace(row, landing=None) for key, row in found.rows.items() if row.landing}
        found.rows.update(landed)
    if abandoned:
        yield calls.delete_many("checkpoints", {**of_thread, "landing": {"$in": sorted(abandoned)}})


def _is_over(row: Row, cutoff: datetime) -> bool:
    return row.hidden_at is not None and row.hidden_at <= cutoff


def hide(found: Survey, going: AbstractSet[Key], moment: datetime, *, dry_run: bool) -> Plan[None]:
    """The calls of subgraphs before the checkpoints that they belong to: cut short, a second run finds them again."""
    inner_first = [] if dry_run else sorted(going, key=lambda key: (-len(key[0]), key))
    for some in thread_queries.batches(inner_first):
        ids = thread_queries.ids(found.tenant, found.thread_id, found.ids(some))
        yield thread_queries.hide(ids, moment)
    found.rows.update({key: replace(found.rows[key], hidden_at=moment) for key in going})


def _hide_writes(found: Survey, staying: AbstractSet[Key], runs: AbstractSet[str], moment: datetime) -> Plan[None]:
    """Hide what the runs left at checkpoints that stay.

    The children that were stored by now are rebuilt from it, those that come later are not: they begin without it. And
    no put may replace what a checkpoint that stays is rebuilt from.
    """
    query = {**queries.thread(found.tenant, found.thread_id), "run_id": {"$in": sorted(runs)}, "hidden_at": None}
    touched = set((yield calls.distinct("writes", "checkpoint_id", query)))
    through, children = lineage.all_histories(found.rows, staying), lineage.children(found.rows)
    for key in sorted(key for key in staying if key[1] in touched):
        readers = children.get(key, [])
        rows = [found.rows[key[0], child] for child in readers]
        channels: set[str] = set()
        for row in rows:
            channels |= lineage.flowing(row, through, is_whole=row.key in staying)
        here = {**query, "checkpoint_ns": key[0], "checkpoint_id": key[1]}
        hidden = {"hidden_at": moment, "read_by": readers}
        if channels:
            needed = {**here, "channel": {"$in": sorted(channels)}}
            yield calls.update_many("writes", needed, {"$set": {**hidden, "lineage": True}})
        yield calls.update_many("writes", here, {"$set": hidden})


def _keep_as_lineage(found: Survey, changed: dict[Key, Row], cutoff: datetime) -> Plan[None]:
    """Take from each what only its readers needed; the filter leaves one that was shown again since."""
    groups: dict[tuple[frozenset[str], bool], list[Key]] = {}
    for key, row in changed.items():
        seeds = row.lineage or frozenset()
        groups.setdefault((seeds, seeds <= row.channels.keys()), []).append(key)
    for (seeds, without_values), keys in groups.items():
        unset = {"metadata": "", **({"values": ""} if without_values else {})}
        for some in thread_queries.batches(keys):
            ids = thread_queries.ids(found.tenant, found.thread_id, found.ids(some))
            update = {"$set": {"lineage": sorted(seeds)}, "$unset": unset}
            yield calls.update_many("checkpoints", {**ids, **_hidden_before(cutoff)}, update)


def _delete(found: Survey, doomed: AbstractSet[Key], cutoff: datetime) -> Plan[None]:
    for some in thread_queries.batches(sorted(doomed)):
        ids = thread_queries.ids(found.tenant, found.thread_id, found.ids(some))
        yield calls.delete_many("checkpoints", {**ids, **_hidden_before(cutoff)})


def _hidden_before(cutoff: datetime) -> Document:
    return {"$or": [{"hidden_at": {"$lte": cutoff}}, {"lineage": {"$ne": None}}]}


def _shown_again(found: Survey, keys: AbstractSet[Key]) -> Plan[set[Key]]:
    """Those that a put has stored anew in the meantime: their writes are live."""
    shown: set[Key] = set()
    for some in thread_queries.batches(sorted(keys)):
        rows = yield thread_queries.shown_again(found.tenant, found.thread_id, found.ids(some))
        shown |= {(row["checkpoint_ns"], row["checkpoint_id"]) for row in rows}
    return shown
