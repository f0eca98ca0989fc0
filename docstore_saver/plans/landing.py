"""Copies of threads that may not be complete: their checkpoints are seen when the commit is (docs/format.md, 8)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from docstore_saver import queries
from docstore_saver.calls import Document, Plan
from docstore_saver.documents import random_id

Landing: TypeAlias = tuple[str, str]
"""(thread_id, the text in `landing`)"""


def new(time: datetime) -> str:
    """The text of a new copy. It tells its age, since a copied checkpoint keeps the times of its source."""
    return f"{random_id()}.{(time - queries.BEGINNING) // timedelta(milliseconds=1)}"


def started(landing: str) -> datetime:
    return queries.BEGINNING + timedelta(milliseconds=int(landing.rpartition(".")[2]))


def of(row: Document) -> Landing | None:
    return (row["thread_id"], row["landing"]) if row.get("landing") else None


def unfinished(tenant: str, rows: Sequence[Document]) -> Plan[set[Landing]]:
    """The copies among these rows whose commit is not there; costs nothing where no row is of a copy."""
    landings = {landing for row in rows if (landing := of(row))}
    if not landings:
        return set()
    commits = yield queries.commits(tenant, sorted(landings))
    return landings - {(commit["thread_id"], commit["value_id"]) for commit in commits}
