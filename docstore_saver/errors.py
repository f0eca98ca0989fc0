"""The error tree. A class's docstring is its default message.

    DocStoreError
    ├── ConfigurationError (ValueError)
    ├── InvalidArgumentError (ValueError)
    ├── WrongFaceError
    ├── WrongLoopError (RuntimeError)
    ├── TenantRequiredError
    ├── RetentionRefusedError
    ├── StorageError
    │   ├── DocumentTooLargeError
    │   ├── UnsupportedByServerError
    │   ├── ThrottledError
    │   ├── UnavailableError
    │   ├── IncompleteCheckpointError
    │   └── ThreadExpiredError
    └── DecodingError
        ├── DecryptionError
        ├── UnknownKeyError
        └── FormatVersionError

A message says what happened and what to do about it. It never holds a key, ciphertext, state, or the credentials
of a connection string. The driver's own error, where there is one, is the ``__cause__``.
"""

from __future__ import annotations

import inspect


def shown(value: object) -> str:
    """A refused value for a message: short, and never a connection string, which may hold a password."""
    text = repr(value)
    return f"(a {type(value).__name__} that looks like a connection string)" if "://" in text else text[:80]


class DocStoreError(Exception):
    """The checkpoint store failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or ""))


class ConfigurationError(DocStoreError, ValueError):
    """The saver was set up in a way that cannot work."""


class InvalidArgumentError(DocStoreError, ValueError):
    """An argument was refused. Nothing was sent to the server."""


class WrongFaceError(DocStoreError):
    """A sync call reached the async saver, or an async client the sync one, where it cannot be served."""


class WrongLoopError(DocStoreError, RuntimeError):
    """The saver's client belongs to a different event loop. Make one saver (or one client) for each loop."""


class TenantRequiredError(DocStoreError):
    """This saver serves several tenants and the call names none. Use for_tenant("...") or a callable tenant_from."""


class RetentionRefusedError(DocStoreError):
    """The operation was refused because a live thread would lose state."""


class StorageError(DocStoreError):
    """The server refused the operation."""

    code: int | None = None
    """The server's error code, where it gave one."""


class DocumentTooLargeError(StorageError):
    """A document is larger than the server takes."""


class UnsupportedByServerError(StorageError):
    """The server does not support the command. Name the store with dialect=."""


class ThrottledError(StorageError):
    """The server asks to send less. Try again later, or give it more capacity."""


class UnavailableError(StorageError):
    """No server answered."""


class IncompleteCheckpointError(StorageError):
    """A stored value of this checkpoint is missing, so its state cannot be restored. Run check(repair=True)."""


class ThreadExpiredError(StorageError):
    """The thread's time to live passed while the run was going on, so the checkpoint was not stored. Start it anew."""


class DecodingError(DocStoreError):
    """A stored document cannot be decoded."""


class DecryptionError(DecodingError):
    """A stored value cannot be decrypted: it was changed, or it was sealed under another key."""


class UnknownKeyError(DecodingError):
    """A stored value was sealed under a key that this saver does not have."""


class FormatVersionError(DecodingError):
    """A document was written by a newer docstore_saver. Upgrade this one."""
