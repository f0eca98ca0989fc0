"""The maintenance methods of the async face."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from docstore_saver.calls import Plan
from docstore_saver.engine import AsyncEngine
from docstore_saver.maintenance import DEFAULT_GRACE, MaintenanceBase, Work
from docstore_saver.reports import CheckReport, OnProgress, Removed, StoreStats, ThreadInfo

T = TypeVar("T")


class AsyncMaintenance(MaintenanceBase):
    """Retention, repair and figures, over a saver's `AsyncEngine`."""

    _engine: AsyncEngine

    async def aprune(  # type: ignore[override]  # LangGraph's answers nothing, and takes less
        self,
        thread_ids: Iterable[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
        older_than: timedelta | float | None = None,
        keep_forks: bool = False,
        grace: timedelta | float = DEFAULT_GRACE,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> Removed:
        """Remove old checkpoints of some threads; what the others are rebuilt from stays.

        Args:
            thread_ids: whose. A thread that does not exist is passed over.
            strategy: "keep_latest" keeps the newest checkpoint of every namespace; the calls of subgraphs go with the
                checkpoint that they belong to. "delete" removes the threads, at once.
            keep_last: keep so many of the newest instead of one.
            older_than: a timedelta or seconds; keep besides what is younger than this.
            keep_forks: keep besides the newest checkpoint of every branch.
            grace: a timedelta or seconds. What goes is hidden at once, and removed by the first prune or sweep of its
                thread after this. 0 removes it now; only when no run is going on in these threads.
            dry_run: change nothing, and answer what would go in the end.
            progress: called after each thread; what it raises stops the prune, which may be run again.

        Raises:
            InvalidArgumentError: an argument was refused; nothing was sent.
        """
        return await self._work_through(
            self._work_prune(thread_ids, strategy, keep_last, older_than, keep_forks, grace, dry_run, progress)
        )

    async def adelete_for_runs(  # type: ignore[override]  # LangGraph's answers nothing, and takes less
        self,
        run_ids: Iterable[str],
        *,
        grace: timedelta | float = DEFAULT_GRACE,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> Removed:
        """Remove the checkpoints and writes of some runs; what other runs' checkpoints are rebuilt from stays, unseen.

        `grace`, `dry_run` and `progress` are those of `prune`; with the default grace the bytes go with a later
        `sweep`.
        """
        return await self._work_through(self._work_delete_for_runs(run_ids, grace, dry_run, progress))

    async def asweep(
        self,
        thread_ids: Iterable[str] | None = None,
        *,
        grace: timedelta | float = DEFAULT_GRACE,
        progress: OnProgress | None = None,
    ) -> Removed:
        """Remove what was hidden longer than `grace` ago, and what it leaves unused: the second half of a prune.

        Without `thread_ids` it finds the threads by itself. Run it from a timer.
        """
        return await self._work_through(self._work_sweep(thread_ids, grace, progress))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str, *, overwrite: bool = False) -> None:
        """Copy a thread with everything that belongs to it; readers see nothing of the copy, or all of it.

        Raises:
            RetentionRefusedError: the target exists, and `overwrite` was not given.
        """
        await self._run_patiently(self._plan_copy_thread(source_thread_id, target_thread_id, overwrite))

    async def acheck(
        self,
        thread_ids: Iterable[str] | None = None,
        *,
        repair: bool = False,
        grace: timedelta | float = DEFAULT_GRACE,
        progress: OnProgress | None = None,
    ) -> CheckReport:
        """Look for checkpoints that cannot be restored, and for what nothing refers to; `repair` removes both.

        Args:
            thread_ids: where to look; default: everywhere.
            repair: remove what was found. A checkpoint that cannot be restored makes room for the one before it.
            grace: what is younger than this is not yet counted as left over.
            progress: called after each thread.
        """
        return await self._work_through(self._work_check(thread_ids, repair, grace, progress))

    async def aexpire(self, *, progress: OnProgress | None = None) -> int:
        """Remove the threads whose time to live is over, and answer how many.

        For stores without a TTL index (`setup` says so); on others the server does it. Run it from a timer.
        """
        return await self._work_through(self._work_expire(progress))

    async def aset_ttl(self, ttl: timedelta | float | None) -> None:
        """Change the time to live of the store's threads: a timedelta, seconds, or None for no end.

        Older threads get it too. Other processes take notice within ten minutes.
        """
        await self._run_patiently(self._plan_set_ttl(ttl))

    async def astats(self, *, progress: OnProgress | None = None) -> StoreStats:
        """What the tenant has stored. Reads the sizes of all its documents, a page of threads at a time."""
        return await self._work_through(self._work_stats(progress))

    async def athreads(self, *, order_by: str = "thread_id", limit: int | None = None) -> AsyncIterator[ThreadInfo]:
        """The tenant's threads, by id or ("activity") the one that was active last first; read a page at a time."""
        listing = self._thread_listing(order_by, limit)
        while (info := await self._run_patiently(listing.next())) is not None:
            yield info

    def prune(  # type: ignore[override]  # LangGraph's answers nothing, and takes less
        self,
        thread_ids: Iterable[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
        older_than: timedelta | float | None = None,
        keep_forks: bool = False,
        grace: timedelta | float = DEFAULT_GRACE,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> Removed:
        """`aprune`, from another thread than the loop's."""
        return self._engine.bridge(
            lambda: self.aprune(
                thread_ids,
                strategy=strategy,
                keep_last=keep_last,
                older_than=older_than,
                keep_forks=keep_forks,
                grace=grace,
                dry_run=dry_run,
                progress=progress,
            )
        )

    def delete_for_runs(  # type: ignore[override]  # LangGraph's answers nothing, and takes less
        self,
        run_ids: Iterable[str],
        *,
        grace: timedelta | float = DEFAULT_GRACE,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> Removed:
        """`adelete_for_runs`, from another thread than the loop's."""
        return self._engine.bridge(
            lambda: self.adelete_for_runs(run_ids, grace=grace, dry_run=dry_run, progress=progress)
        )

    def sweep(
        self,
        thread_ids: Iterable[str] | None = None,
        *,
        grace: timedelta | float = DEFAULT_GRACE,
        progress: OnProgress | None = None,
    ) -> Removed:
        """`asweep`, from another thread than the loop's."""
        return self._engine.bridge(lambda: self.asweep(thread_ids, grace=grace, progress=progress))

    def copy_thread(self, source_thread_id: str, target_thread_id: str, *, overwrite: bool = False) -> None:
        """`acopy_thread`, from another thread than the loop's."""
        self._engine.bridge(lambda: self.acopy_thread(source_thread_id, target_thread_id, overwrite=overwrite))

    def check(
        self,
        thread_ids: Iterable[str] | None = None,
        *,
        repair: bool = False,
        grace: timedelta | float = DEFAULT_GRACE,
        progress: OnProgress | None = None,
    ) -> CheckReport:
        """`acheck`, from another thread than the loop's."""
        return self._engine.bridge(lambda: self.acheck(thread_ids, repair=repair, grace=grace, progress=progress))

    def expire(self, *, progress: OnProgress | None = None) -> int:
        """`aexpire`, from another thread than the loop's."""
        return self._engine.bridge(lambda: self.aexpire(progress=progress))

    def set_ttl(self, ttl: timedelta | float | None) -> None:
        """`aset_ttl`, from another thread than the loop's."""
        self._engine.bridge(lambda: self.aset_ttl(ttl))

    def stats(self, *, progress: OnProgress | None = None) -> StoreStats:
        """`astats`, from another thread than the loop's."""
        return self._engine.bridge(lambda: self.astats(progress=progress))

    def threads(self, *, order_by: str = "thread_id", limit: int | None = None) -> Iterator[ThreadInfo]:
        """`athreads`, from another thread than the loop's."""
        listing = self._thread_listing(order_by, limit)
        while (info := self._engine.bridge(lambda: self._run_patiently(listing.next()))) is not None:
            yield info

    async def _run_patiently(self, plan: Plan[T]) -> T:
        return await self._engine.run(plan, self._plan_first_use, patient=True)

    async def _work_through(self, work: Work[T]) -> T:
        answer: Any = None
        try:
            while True:
                answer = await self._run_patiently(work.send(answer))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # StopIteration is untyped
