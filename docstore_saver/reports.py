"""What the maintenance methods answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What an operation took away (with ``dry_run``: would take away, its grace being over).

    Counts are documents, but `values` counts values whatever their number of parts; `bytes` are those of the removed
    documents' payloads as they were stored.
    """

    hidden: int = 0
    """Checkpoints that readers do not see any more, to be removed when grace is over."""
    checkpoints: int = 0
    lineage: int = 0
    """Checkpoints of which only that is kept from which later ones are rebuilt."""
    writes: int = 0
    values: int = 0
    bytes: int = 0

    def __add__(self, other: Removed) -> Removed:
        sums = {name.name: getattr(self, name.name) + getattr(other, name.name) for name in fields(self)}
        return Removed(**sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an operation over many threads has come."""

    operation: str
    thread_id: str
    """The thread that was just finished."""
    done: int
    """Threads finished."""
    total: int | None
    """Threads to do, where that is known."""


OnProgress: TypeAlias = Callable[[Progress], None]
"""Called after each thread. What it raises stops the operation, which may be run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo:
    """A thread as its plain fields show it."""

    thread_id: str
    namespaces: tuple[str, ...]
    checkpoints: int
    """Those that `list` would show."""
    hidden: int
    """Checkpoints that wait for a sweep, or stay for their descendants only."""
    last_activity: datetime
    """UTC without a zone: the time of its newest checkpoint."""
    newest: str
    """The id of that checkpoint."""
    writes: int
    values: int
    bytes: int
    """Of all payloads, as they are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """The sums over all threads of a tenant."""

    threads: int = 0
    checkpoints: int = 0
    hidden: int = 0
    writes: int = 0
    values: int = 0
    bytes: int = 0
    ttl_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that `check` found in one thread, and what to do about it."""

    kind: str
    """``incomplete``, ``orphans``, ``unfinished copy``."""
    thread_id: str
    checkpoint_ns: str | None
    checkpoint_id: str | None
    message: str
    repaired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What `check` found; empty `findings` mean that every thread is whole."""

    threads: int
    findings: tuple[Finding, ...]
    truncated: bool
    """Whether there were more findings than a report holds."""

    @property
    def is_ok(self) -> bool:
        return not any(not finding.repaired for finding in self.findings)
