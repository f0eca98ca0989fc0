"""The only code that touches a driver: it drives a plan, sync or async, and turns driver errors into ours."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import pymongo
from pymongo import IndexModel

from docstore_saver.calls import Call, CollectionName, Compute, Group, Plan, Step
from docstore_saver.driver_errors import translated

T = TypeVar("T")
Collections = Mapping[CollectionName, Any]

_BREATH_SECONDS = 0.005
"""How long an async plan may compute before the event loop gets a turn."""


class SyncRunner:
    """Drives plans over MongoClient and mongomock."""

    def __init__(self, collections: Collections, *, timeout: float | None, hosts: str, thread_safe: bool) -> None:
        self._collections = collections
        self._timeout = timeout
        self._hosts = hosts
        self._lock: AbstractContextManager[Any] = nullcontext() if thread_safe else threading.RLock()

    def run(self, plan: Plan[T], *, patient: bool = False) -> T:
        """Drive a plan to its end; the timeout bounds all of it, or (`patient`) each of its commands."""
        with _deadline(None if patient else self._timeout):
            try:
                step = next(plan)
                while True:
                    try:
                        with _deadline(self._timeout if patient else None):
                            result = self._perform(step)
                    except Exception as error:
                        step = plan.throw(error)
                    else:
                        step = plan.send(result)
            except StopIteration as stop:
                return cast(T, stop.value)

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Compute):
            return step.function()
        if isinstance(step, Group):
            return [self._perform(call) for call in step.calls]
        try:
            with self._lock:
                answer = _method(self._collections, step)
                return list(answer) if step.method in _CURSORS else _outcome(step, answer)
        except Exception as error:
            raise translated(error, self._hosts) from error


class AsyncRunner:
    """Drives plans over AsyncMongoClient, Motor and mongomock-motor."""

    def __init__(self, collections: Collections, *, timeout: float | None, hosts: str, pool: Executor) -> None:
        self._collections = collections
        self._timeout = timeout
        self._hosts = hosts
        self._pool = pool
        self._breath = time.monotonic()

    async def run(self, plan: Plan[T], *, patient: bool = False) -> T:
        """As `SyncRunner.run`."""
        with _deadline(None if patient else self._timeout):
            try:
                step = next(plan)
                while True:
                    try:
                        with _deadline(self._timeout if patient else None):
                            result = await self._perform(step)
                    except Exception as error:
                        step = plan.throw(error)
                    else:
                        step = plan.send(result)
            except StopIteration as stop:
                return cast(T, stop.value)
            finally:
                plan.close()

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Compute):
            return await self._compute(step)
        if isinstance(step, Group):
            return await self._together(step.calls)
        try:
            return await self._send(step)
        except Exception as error:
            raise translated(error, self._hosts) from error

    async def _send(self, call: Call) -> Any:
        answer = _method(self._collections, call)
        # AsyncCollection.aggregate is a coroutine, Motor's is not; list_indexes differs the same way.
        if inspect.isawaitable(answer):
            answer = await answer
        if call.method in _CURSORS:
            answer = await answer.to_list(None)
        self._breath = time.monotonic()
        return answer if call.method in _CURSORS else _outcome(call, answer)

    async def _together(self, calls: Sequence[Call]) -> list[Any]:
        tasks = [asyncio.ensure_future(self._perform(call)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _compute(self, step: Compute) -> Any:
        if step.large:
            # In a thread the interpreter changes hands every few milliseconds, on the loop it would not.
            return await asyncio.get_running_loop().run_in_executor(self._pool, step.function)
        result = step.function()
        if time.monotonic() - self._breath > _BREATH_SECONDS:
            await asyncio.sleep(0)
            self._breath = time.monotonic()
        return result


_CURSORS = frozenset({"find", "aggregate", "list_indexes"})


def _method(collections: Collections, call: Call) -> Any:
    """Start a call: a result of the sync drivers, a cursor or an awaitable of the async ones."""
    collection = collections[call.collection]
    if call.method == "create_indexes":
        return collection.create_indexes([_index_model(model) for model in call.arguments[0]])
    if call.method == "modify_index":
        name, seconds = call.arguments
        index = {"name": name, "expireAfterSeconds": seconds}
        return collection.database.command("collMod", collection.name, index=index)
    return getattr(collection, call.method)(*call.arguments, **call.options)


def _index_model(model: Mapping[str, Any]) -> IndexModel:
    options = {name: value for name, value in model.items() if name != "keys"}
    return IndexModel(model["keys"], **options)


def _outcome(call: Call, answer: Any) -> Any:
    counts: dict[str, Callable[[Any], Any]] = {
        "update_many": lambda result: result.matched_count,
        "replace_one": lambda result: result.matched_count,
        "delete_many": lambda result: result.deleted_count,
        "distinct": list,
    }
    return counts[call.method](answer) if call.method in counts else None


def _deadline(seconds: float | None) -> AbstractContextManager[Any]:
    return pymongo.timeout(seconds) if seconds is not None else nullcontext()
