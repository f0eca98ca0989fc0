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
from bson.errors import BSONError
from pymongo import IndexModel
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    ExecutionTimeout,
    InvalidOperation,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
    WTimeoutError,
)
from pymongo.errors import DocumentTooLarge as DriverDocumentTooLarge

from docstore_saver.calls import Call, CollectionName, Compute, DuplicateKeys, Group, Plan, Step
from docstore_saver.dialects import THROTTLED_CODES, TOO_LARGE_CODES, UNAUTHORIZED_CODES, UNSUPPORTED_CODES
from docstore_saver.errors import (
    ConfigurationError,
    DocumentTooLargeError,
    InvalidArgumentError,
    StorageError,
    ThrottledError,
    UnavailableError,
    UnsupportedByServerError,
)

T = TypeVar("T")
Collections = Mapping[CollectionName, Any]

_DUPLICATE = 11000
_BREATH_SECONDS = 0.005
"""How long an async plan may compute before the event loop gets a turn."""


class SyncRunner:
    """Drives plans over MongoClient and mongomock."""

    def __init__(self, collections: Collections, *, timeout: float | None, hosts: str, thread_safe: bool) -> None:
        self._collections = collections
        self._timeout = timeout
        self._hosts = hosts
        self._lock: AbstractContextManager[Any] = nullcontext() if thread_safe else threading.RLock()

    def run(self, plan: Plan[T]) -> T:
        with _deadline(self._timeout):
            try:
                step = next(plan)
                while True:
                    try:
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

    async def run(self, plan: Plan[T]) -> T:
        with _deadline(self._timeout):
            try:
                step = next(plan)
                while True:
                    try:
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
        if len(calls) < 2:
            return [await self._perform(call) for call in calls]
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


def translated(error: Exception, hosts: str) -> Exception:
    """Our error for a driver's; the caller keeps the driver's as its cause."""
    ours = _translation(error, hosts)
    if isinstance(ours, StorageError) and ours.code is None:
        ours.code = getattr(error, "code", None)
    return ours


def _translation(error: Exception, hosts: str) -> Exception:
    if isinstance(error, DuplicateKeyError):
        return DuplicateKeys([0])
    if isinstance(error, BulkWriteError):
        return _bulk(error, hosts)
    if isinstance(error, DriverDocumentTooLarge):
        return DocumentTooLargeError(
            "A document is larger than the server takes. Large values are cut into parts, so this is a very long list "
            "of channels or identifiers; lower inline_limit= if it is not."
        )
    if isinstance(error, BSONError | OverflowError | UnicodeEncodeError):
        return InvalidArgumentError(f"An identifier or a channel name cannot be stored: {error}")
    if isinstance(error, InvalidOperation) and "close" in str(error).lower():
        return ConfigurationError("The client of this saver is closed. Make a new saver, or keep the client open.")
    if isinstance(error, WTimeoutError | WriteConcernError):
        return StorageError("The write was applied, but a majority of the servers did not confirm it in time.")
    if isinstance(error, AutoReconnect | NetworkTimeout | ExecutionTimeout) or _timed_out(error):
        return UnavailableError(_unavailable(hosts, error))
    if isinstance(error, OperationFailure):
        return _refused(error)
    if isinstance(error, NotImplementedError):
        return UnsupportedByServerError(f"The store cannot do this: {error}")
    if isinstance(error, PyMongoError):
        return StorageError(f"The driver failed: {_first_sentence(error)}")
    return error


def _bulk(error: BulkWriteError, hosts: str) -> Exception:
    """Duplicates are for the plan to judge, if they are all that went wrong."""
    details = cast("dict[str, Any]", error.details)
    failures = details.get("writeErrors") or []
    others = [failure for failure in failures if failure.get("code") != _DUPLICATE]
    if not others and not details.get("writeConcernErrors"):
        return DuplicateKeys([failure["index"] for failure in failures])
    if others:
        first = others[0]
        return _refused(OperationFailure(str(first.get("errmsg", "")), first.get("code")))
    return StorageError("The writes were applied, but a majority of the servers did not confirm them in time.")


def _refused(error: OperationFailure) -> StorageError:
    text = _first_sentence(error)
    if error.code in THROTTLED_CODES:
        return ThrottledError()
    if error.code in TOO_LARGE_CODES:
        return DocumentTooLargeError(f"A document is larger than the server takes: {text}")
    if error.code in UNSUPPORTED_CODES:
        return UnsupportedByServerError(f"The server does not support this command: {text}")
    if error.code in UNAUTHORIZED_CODES:
        return StorageError(
            f"The server refused: {text}. The user of this connection needs find, insert, update and remove on the "
            "saver's collections; setup() by an administrator needs createIndex and listIndexes too."
        )
    return StorageError(f"The server refused (code {error.code}): {text}")


def _timed_out(error: Exception) -> bool:
    return isinstance(error, PyMongoError) and error.timeout


def _unavailable(hosts: str, error: Exception) -> str:
    return (
        f"No server answered at {hosts}. Check that it runs, that host, port and replica set name are right, and that "
        f"network, TLS and access lists let you in. ({_first_sentence(error)})"
    )


def _first_sentence(error: Exception) -> str:
    """The telling part of a driver's message: without topology dumps, and of bounded length."""
    text = str(error).partition(", full error:")[0].partition(" (configured timeouts")[0].partition(", Timeout:")[0]
    return text[:300]
