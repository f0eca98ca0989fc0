"""Joins plans to a client: makes the collections at the first use and runs setup once. Shared by a saver's clones."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from docstore_saver.calls import Plan
from docstore_saver.clients import ClientSource, collections_of
from docstore_saver.errors import WrongFaceError
from docstore_saver.options import Options
from docstore_saver.runners import AsyncRunner, SyncRunner

T = TypeVar("T")
Setup = Callable[[], Plan[Any]]


class _Pool:
    """A thread pool that is made when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def get(self) -> ThreadPoolExecutor:
        with self._lock:
            self._executor = self._executor or ThreadPoolExecutor(thread_name_prefix="docstore_saver")
            return self._executor

    def close(self) -> None:
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)


class SyncEngine:
    """Runs plans in the caller's thread; its `arun` runs them in a pool of its own."""

    def __init__(self, source: ClientSource, names: Mapping[Any, str], options: Options) -> None:
        self._source, self._names, self._options = source, names, options
        self._pool = _Pool()
        self._lock = threading.RLock()
        self._runner: SyncRunner | None = None
        self._is_set_up = False

    def run(self, plan: Plan[T], setup: Setup, *, patient: bool = False) -> T:
        if not self._is_set_up:
            with self._lock:
                if not self._is_set_up:
                    self.set_up(setup)
        return self._get_runner().run(plan, patient=patient)

    def set_up(self, setup: Setup) -> None:
        with self._lock:
            self._get_runner().run(setup())
            self._is_set_up = True

    async def arun(self, function: Callable[[], T]) -> T:
        call = partial(contextvars.copy_context().run, function)
        return await asyncio.get_running_loop().run_in_executor(self._pool.get(), call)

    def close(self) -> None:
        self._source.close()
        self._pool.close()

    def _get_runner(self) -> SyncRunner:
        # Always asked for, since a closed saver must say so.
        client = self._source.get()
        if self._runner is None:
            with self._lock:
                self._runner = self._runner or SyncRunner(
                    collections_of(client, self._options.database, self._names),
                    timeout=self._options.timeout,
                    hosts=self._source.hosts,
                    thread_safe=self._source.dialect.thread_safe,
                )
        return self._runner


@dataclass
class _OnLoop:
    runner: AsyncRunner
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class AsyncEngine:
    """Runs plans on the event loop of the caller; its `bridge` lets other threads call in."""

    def __init__(self, source: ClientSource, names: Mapping[Any, str], options: Options) -> None:
        self._source, self._names, self._options = source, names, options
        self._pool = _Pool()
        self._by_loop: dict[asyncio.AbstractEventLoop, _OnLoop] = {}
        self._first_loop: asyncio.AbstractEventLoop | None = None
        self._is_set_up = False

    async def run(self, plan: Plan[T], setup: Setup, *, patient: bool = False) -> T:
        here = self._here()
        if not self._is_set_up:
            async with here.lock:
                if not self._is_set_up:
                    await self._set_up(here, setup)
        return await here.runner.run(plan, patient=patient)

    async def set_up(self, setup: Setup) -> None:
        here = self._here()
        async with here.lock:
            await self._set_up(here, setup)

    async def _set_up(self, here: _OnLoop, setup: Setup) -> None:
        await here.runner.run(setup())
        self._is_set_up = True

    def bridge(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the saver's loop from another thread.

        Raises:
            WrongFaceError: there is no running loop yet, or this is its own thread, which waiting would block for ever.
        """
        loop = self._first_loop
        if loop is None or not loop.is_running():
            raise WrongFaceError(
                "A sync method of AsyncDocStoreSaver needs the saver's event loop, and none is running: it is that of "
                "the first awaited call. Await the a... method, or use DocStoreSaver."
            )
        if _running_loop() is loop:
            raise WrongFaceError(
                "A sync method of AsyncDocStoreSaver was called on its own event loop, which it would block for ever. "
                "Await the a... method (graph.ainvoke, graph.aget_state ...), or use DocStoreSaver."
            )
        return asyncio.run_coroutine_threadsafe(make(), loop).result()

    async def aclose(self) -> None:
        await self._source.aclose()
        self._by_loop.pop(asyncio.get_running_loop(), None)
        self._pool.close()

    def _here(self) -> _OnLoop:
        loop = asyncio.get_running_loop()
        client = self._source.get(loop)
        self._first_loop = self._first_loop if self._first_loop and self._first_loop.is_running() else loop
        if loop not in self._by_loop:
            self._by_loop = {known: here for known, here in self._by_loop.items() if not known.is_closed()}
            runner = AsyncRunner(
                collections_of(client, self._options.database, self._names),
                timeout=self._options.timeout,
                hosts=self._source.hosts,
                pool=self._pool.get(),
            )
            self._by_loop[loop] = _OnLoop(runner)
        return self._by_loop[loop]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
