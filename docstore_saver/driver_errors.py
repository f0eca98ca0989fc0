"""The driver's errors as ours. The caller keeps the driver's as the cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from bson.errors import BSONError
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    InvalidOperation,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
    WTimeoutError,
)
from pymongo.errors import ConfigurationError as DriverConfigurationError

from docstore_saver.calls import DuplicateKeys
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

_DUPLICATE = 11000
_UNCONFIRMED = "The write was applied, but a majority of the servers did not confirm it in time."
_TOO_LARGE = (
    "A document is larger than the server takes. Large values are cut into parts, so this is a very long list of "
    "channels or identifiers; lower inline_limit= if it is not."
)


def translated(error: Exception, hosts: str) -> Exception:
    """Answer our error for a driver's, and any other error as it is."""
    if isinstance(error, PyMongoError) and error.timeout:
        return _coded(_unavailable(error, hosts), error)
    for kinds, translate in _TRANSLATIONS:
        if isinstance(error, kinds):
            return _coded(translate(error, hosts), error)
    return error


def _coded(ours: Exception, error: Exception) -> Exception:
    if isinstance(ours, StorageError) and ours.code is None:
        ours.code = getattr(error, "code", None)
    return ours


def _bulk(error: BulkWriteError, hosts: str) -> Exception:
    """Duplicates are for the plan to judge, if they are all that went wrong."""
    details = cast("dict[str, Any]", error.details)
    failures = details.get("writeErrors") or []
    other = next((failure for failure in failures if failure.get("code") != _DUPLICATE), None)
    if other is not None:
        return _refused(OperationFailure(str(other.get("errmsg", "")), other.get("code")), hosts)
    if details.get("writeConcernErrors"):
        return StorageError(_UNCONFIRMED)
    return DuplicateKeys([failure["index"] for failure in failures])


def _invalid_operation(error: InvalidOperation, _: str) -> Exception:
    if "close" in str(error).lower():
        return ConfigurationError("The client of this saver is closed. Make a new saver, or keep the client open.")
    return StorageError(f"The driver refused: {_first_sentence(error)}")


def _misconfigured(error: DriverConfigurationError, hosts: str) -> Exception:
    """What the driver only sees when it connects: an SRV record, a server too old for it, a wrong kind of set."""
    if "dns" in str(error).lower():
        return _unavailable(error, hosts)
    return ConfigurationError(f"The driver cannot work with {hosts}: {_first_sentence(error)}")


def _unavailable(error: Exception, hosts: str) -> UnavailableError:
    return UnavailableError(
        f"No server answered at {hosts}. Check that it runs, that host, port and replica set name are right, and that "
        f"network, TLS and access lists let you in. ({_first_sentence(error)})"
    )


def _refused(error: OperationFailure, _: str) -> StorageError:
    text = _first_sentence(error)
    for codes, make in _REFUSALS:
        if error.code in codes:
            ours = make(text)
            break
    else:
        ours = StorageError(f"The server refused (code {error.code}): {text}")
    ours.code = error.code
    return ours


def _unauthorized(text: str) -> StorageError:
    return StorageError(
        f"The server refused: {text}. The user of this connection needs find, insert, update and remove on the saver's "
        "collections; setup() by an administrator needs createIndex and listIndexes too."
    )


def _first_sentence(error: Exception) -> str:
    """The telling part of a driver's message: without topology dumps, and of bounded length."""
    text = str(error).partition(", full error:")[0].partition(" (configured timeouts")[0].partition(", Timeout:")[0]
    return text[:300]


_Translate: TypeAlias = Callable[[Any, str], Exception]

# In this order: subclasses stand before their bases.
_TRANSLATIONS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], _Translate], ...] = (
    (DuplicateKeyError, lambda _, __: DuplicateKeys([0])),
    (BulkWriteError, _bulk),
    (DocumentTooLarge, lambda _, __: DocumentTooLargeError(_TOO_LARGE)),
    (
        (BSONError, OverflowError, UnicodeEncodeError),
        lambda error, _: InvalidArgumentError(f"An identifier or a channel name cannot be stored: {error}"),
    ),
    (InvalidOperation, _invalid_operation),
    (DriverConfigurationError, _misconfigured),
    ((WTimeoutError, WriteConcernError), lambda _, __: StorageError(_UNCONFIRMED)),
    ((AutoReconnect, NetworkTimeout, ExecutionTimeout), _unavailable),
    (OperationFailure, _refused),
    (NotImplementedError, lambda error, _: UnsupportedByServerError(f"The store cannot do this: {error}")),
    (PyMongoError, lambda error, _: StorageError(f"The driver failed: {_first_sentence(error)}")),
)

_REFUSALS: tuple[tuple[frozenset[int], Callable[[str], StorageError]], ...] = (
    (THROTTLED_CODES, lambda _: ThrottledError()),
    (TOO_LARGE_CODES, lambda text: DocumentTooLargeError(f"A document is larger than the server takes: {text}")),
    (UNSUPPORTED_CODES, lambda text: UnsupportedByServerError(f"The server does not support this command: {text}")),
    (UNAUTHORIZED_CODES, _unauthorized),
)
