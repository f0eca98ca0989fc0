"""What the maintenance methods of both faces do, as generators of plans: one thread at a time, each short and whole.

A `Work` may be stopped between two plans (by its caller, by a progress callback that raises) and run again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from docstore_saver.arguments import ArgumentReader
from docstore_saver.base import SaverBase
from docstore_saver.calls import Plan
from docstore_saver.documents import now
from docstore_saver.plans import admin, checking, copying, expiry, overview, retention
from docstore_saver.plans.overview import ThreadListing
from docstore_saver.reports import CheckReport, Finding, OnProgress, Progress, Removed, StoreStats
from docstore_saver.thread_queries import is_hidden_before, next_threads, threads_of_runs

T = TypeVar("T")

Work: TypeAlias = Generator[Plan[Any], Any, T]
"""Plans to run one after another; each is sent what the last one answered."""

DEFAULT_GRACE = timedelta(hours=1)
_MOST_FINDINGS = 1000
_RUNS = 500


class _Report:
    """Tells the caller how far it is."""

    def __init__(self, operation: str, on_progress: Any, total: int | None = None) -> None:
        self._operation, self._on_progress, self._total = operation, on_progress, total
        self.done = 0

    def finished(self, thread_id: str) -> None:
        self.done += 1
        if self._on_progress is not None:
            self._on_progress(
                Progress(operation=self._operation, thread_id=thread_id, done=self.done, total=self._total)
            )


class MaintenanceBase(SaverBase):
    """The work behind each method. Arguments are checked before the first plan."""

    def _work_prune(
        self,
        thread_ids: Any,
        strategy: Any,
        keep_last: Any,
        older_than: Any,
        keep_forks: Any,
        grace: Any,
        dry_run: Any,
        progress: Any,
    ) -> Work[Removed]:
        tenant = self._tenant_of(None)
        reader = self._reader(tenant)
        threads = reader.ids("thread_ids", thread_ids)
        reader.flags(keep_forks=keep_forks, dry_run=dry_run)
        keep = reader.keep(strategy, keep_last, older_than, keep_forks)
        period = reader.grace(grace)

        def prune(thread_id: str) -> Plan[Removed]:
            if keep is None:
                return retention.delete_all(self._scope(), tenant, thread_id, dry_run=dry_run)
            return retention.prune(self._scope(), tenant, thread_id, keep, period, dry_run=dry_run)

        return _each("prune", threads, prune, reader.progress(progress))

    def _work_delete_for_runs(
        self, run_ids: Any, grace: Any, dry_run: Any, progress: OnProgress | None
    ) -> Work[Removed]:
        tenant = self._tenant_of(None)
        reader = self._reader(tenant)
        reader.flags(dry_run=dry_run)
        runs = frozenset(reader.ids("run_ids", run_ids)) - {""}
        reader.progress(progress)
        period = reader.grace(grace)

        def delete(thread_id: str) -> Plan[Removed]:
            return retention.delete_for_runs(self._scope(), tenant, thread_id, runs, period, dry_run=dry_run)

        def work() -> Work[Removed]:
            threads = yield _threads_of_runs(tenant, sorted(runs))
            return (yield from _each("delete_for_runs", threads, delete, progress))

        return work()

    def _work_sweep(self, thread_ids: Any, grace: Any, progress: Any) -> Work[Removed]:
        tenant = self._tenant_of(None)
        reader = self._reader(tenant)
        period = reader.grace(grace)
        reader.progress(progress)

        def sweep(thread_id: str) -> Plan[Removed]:
            return retention.sweep_thread(self._scope(), tenant, thread_id, period)

        if thread_ids is not None:
            return _each("sweep", reader.ids("thread_ids", thread_ids), sweep, progress)

        def work() -> Work[Removed]:
            report, removed, behind = _Report("sweep", progress), Removed(), None
            while threads := (yield _hidden_threads(tenant, behind, period)):
                for thread_id in threads:
                    removed += yield sweep(thread_id)
                    report.finished(thread_id)
                behind = threads[-1]
            return removed

        return work()

    def _plan_copy_thread(self, source: Any, target: Any, overwrite: Any) -> Plan[None]:
        tenant = self._tenant_of(None)
        source_id, target_id = self._reader(tenant).copy(source, target)
        ArgumentReader.flags(overwrite=overwrite)
        return copying.copy_thread(self._scope(), tenant, source_id, target_id, overwrite=overwrite)

    def _work_expire(self, progress: Any) -> Work[int]:
        tenant = self._tenant_of(None)
        ArgumentReader.progress(progress)

        def work() -> Work[int]:
            report, expired, behind = _Report("expire", progress), 0, None
            while True:
                threads, old = yield expiry.expired_threads(self._scope(), tenant, behind)
                for thread_id in threads:
                    expired += yield expiry.expire_thread(tenant, thread_id, old)
                    report.finished(thread_id)
                if not threads:
                    return expired
                behind = threads[-1]

        return work()

    def _plan_set_ttl(self, ttl: Any) -> Plan[None]:
        return admin.set_ttl(self._scope(), ArgumentReader.ttl(ttl))

    def _work_check(self, thread_ids: Any, repair: Any, grace: Any, progress: Any) -> Work[CheckReport]:
        tenant = self._tenant_of(None)
        reader = self._reader(tenant)
        period = reader.grace(grace)
        reader.flags(repair=repair)
        reader.progress(progress)
        chosen = None if thread_ids is None else reader.ids("thread_ids", thread_ids)

        def work() -> Work[CheckReport]:
            report = _Report("check", progress, None if chosen is None else len(chosen))
            findings: list[Finding] = []
            behind, more = None, True
            while more:
                threads, behind = (
                    (chosen, None) if chosen is not None else (yield overview.every_thread(tenant, behind))
                )
                more = behind is not None
                for thread_id in threads:
                    found = yield checking.check_thread(self._scope(), tenant, thread_id, period, repair=repair)
                    findings += found[: _MOST_FINDINGS + 1 - len(findings)]
                    report.finished(thread_id)
            return CheckReport(
                threads=report.done,
                findings=tuple(findings[:_MOST_FINDINGS]),
                truncated=len(findings) > _MOST_FINDINGS,
            )

        return work()

    def _thread_listing(self, order_by: Any, limit: Any) -> ThreadListing:
        tenant = self._tenant_of(None)
        by_activity, most = self._reader(tenant).listing(order_by, limit)
        return ThreadListing(self._scope(), tenant, by_activity=by_activity, limit=most)

    def _work_stats(self, progress: Any) -> Work[StoreStats]:
        tenant = self._tenant_of(None)
        ArgumentReader.progress(progress)

        def work() -> Work[StoreStats]:
            report = _Report("stats", progress)
            sums = dict.fromkeys(("checkpoints", "hidden", "writes", "values", "bytes"), 0)
            threads, behind, more = 0, None, True
            while more:
                infos, behind = yield overview.page_by_id(self._scope(), tenant, behind)
                more = behind is not None
                for info in infos:
                    threads += info.checkpoints > 0
                    sums = {name: value + getattr(info, name) for name, value in sums.items()}
                    report.finished(info.thread_id)
            ttl = self._state.ttl
            return StoreStats(threads=threads, ttl_seconds=ttl.seconds if ttl else None, **sums)

        return work()


def _each(
    operation: str, threads: Sequence[str], plan: Callable[[str], Plan[Removed]], progress: OnProgress | None
) -> Work[Removed]:
    report, removed = _Report(operation, progress, len(threads)), Removed()
    for thread_id in threads:
        removed += yield plan(thread_id)
        report.finished(thread_id)
    return removed


def _threads_of_runs(tenant: str, runs: Sequence[str]) -> Plan[list[str]]:
    threads: set[str] = set()
    for at in range(0, len(runs), _RUNS):
        for collection in ("checkpoints", "writes"):
            threads.update((yield threads_of_runs(collection, tenant, runs[at : at + _RUNS])))
    return sorted(threads)


def _hidden_threads(tenant: str, behind: str | None, grace: timedelta) -> Plan[list[str]]:
    groups = yield next_threads("checkpoints", tenant, behind, overview.SCAN, is_hidden_before(now() - grace))
    return sorted(group["_id"] for group in groups)


def drive(work: Work[T], run: Callable[[Plan[Any]], Any]) -> T:
    """Run the plans of a work one after another."""
    answer: Any = None
    try:
        while True:
            answer = run(work.send(answer))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # StopIteration is untyped
