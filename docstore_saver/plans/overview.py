"""threads and stats: what plain fields tell, a page of threads at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from docstore_saver import calls, queries, thread_queries
from docstore_saver.calls import Document, Group, Plan
from docstore_saver.documents import now
from docstore_saver.plans import landing
from docstore_saver.reports import ThreadInfo
from docstore_saver.state import LruCache, Scope

SCAN = 2000
"""Checkpoints behind one page of threads."""
_ROWS = 200
_REMEMBERED = 10_000


def page_by_id(scope: Scope, tenant: str, behind: str | None) -> Plan[tuple[list[ThreadInfo], str | None]]:
    """The threads behind this id, in order, and where to go on; those without a visible checkpoint too."""
    groups = yield thread_queries.next_threads("checkpoints", tenant, behind, SCAN)
    ids = sorted(group["_id"] for group in groups)
    if not ids:
        return [], None
    return (yield from _infos(scope, tenant, ids)), ids[-1]


class ThreadListing:
    """A list of threads in progress; `next()` is a plan for the next one.

    By activity the checkpoints are read newest first, and a thread comes where its newest checkpoint does.
    """

    def __init__(self, scope: Scope, tenant: str, *, by_activity: bool, limit: int | None) -> None:
        self._scope, self._tenant, self._by_activity, self._left = scope, tenant, by_activity, limit
        self._ready: deque[ThreadInfo] = deque()
        self._behind: str | None = None
        self._more = True
        self._upper: str | None = None
        self._passed: list[str] = []
        self._listed: LruCache[str, bool] = LruCache(_REMEMBERED)

    def next(self) -> Plan[ThreadInfo | None]:
        if self._left == 0:
            return None
        while not self._ready and self._more:
            yield from self._by_newest() if self._by_activity else self._by_id()
        if not self._ready:
            return None
        self._left = None if self._left is None else self._left - 1
        return self._ready.popleft()

    def _by_id(self) -> Plan[None]:
        infos, self._behind = yield from page_by_id(self._scope, self._tenant, self._behind)
        self._more = self._behind is not None
        self._ready.extend(info for info in infos if info.checkpoints)

    def _by_newest(self) -> Plan[None]:
        query: Document = {"tenant": self._tenant, "hidden_at": None}
        if self._upper is not None:
            query |= {"checkpoint_id": {"$lte": self._upper}, "_id": {"$nin": self._passed}}
        rows = yield thread_queries.newest(query, _ROWS)
        if len(rows) < _ROWS:
            self._more = False
        if not rows:
            return
        last = rows[-1]["checkpoint_id"]
        tied = [row["_id"] for row in rows if row["checkpoint_id"] == last]
        self._passed, self._upper = (self._passed + tied if last == self._upper else tied), last
        # One that was listed is not counted again; should it be forgotten, its newest checkpoint lies behind anyway.
        ids = sorted({row["thread_id"] for row in rows if self._listed.get(row["thread_id"]) is None})
        infos = {info.thread_id: info for info in (yield from _infos(self._scope, self._tenant, ids))}
        for row in rows:
            info = infos.get(row["thread_id"])
            if info and info.newest == row["checkpoint_id"] and self._listed.get(info.thread_id) is None:
                self._listed.put(info.thread_id, value=True)
                self._ready.append(info)


def _infos(scope: Scope, tenant: str, ids: list[str]) -> Plan[list[ThreadInfo]]:
    """One for each thread that is not over and not an unfinished copy."""
    if not ids:
        return []
    answers = yield Group(thread_queries.sums(tenant, ids))
    visible, rows, writes, values = ({group["_id"]: group for group in groups} for groups in answers)
    copies = [{"thread_id": name, "landing": row.get("landing")} for name, row in rows.items()]
    unfinished = {thread_id for thread_id, _ in (yield from landing.unfinished(tenant, copies))}
    return [
        _info(thread_id, visible.get(thread_id), [rows[thread_id], writes.get(thread_id), values.get(thread_id)])
        for thread_id in ids
        if thread_id in rows and thread_id not in unfinished and not _is_over(scope, visible.get(thread_id))
    ]


def _info(thread_id: str, seen: Document | None, sums: list[Document | None]) -> ThreadInfo:
    rows, writes, values = ({"count": 0, "size": 0} if some is None else some for some in sums)
    empty: dict[str, Any] = {"count": 0, "namespaces": (), "last": queries.BEGINNING, "newest": ""}
    seen = empty if seen is None else seen
    return ThreadInfo(
        thread_id=thread_id,
        # mongomock answers None for the empty string in a set.
        namespaces=tuple(sorted({name or "" for name in seen["namespaces"]})),
        checkpoints=seen["count"],
        hidden=rows["count"] - seen["count"],
        last_activity=seen["last"],
        newest=seen["newest"],
        writes=writes["count"],
        values=values["count"],
        bytes=rows["size"] + writes["size"] + values["size"],
    )


def _is_over(scope: Scope, seen: Document | None) -> bool:
    limit = scope.state.ttl
    return limit is not None and seen is not None and limit.is_over(seen["active_at"], now())


def every_thread(tenant: str, behind: str | None) -> Plan[tuple[list[str], str | None]]:
    """The next thread ids with documents in any collection: a deletion that was cut short leaves some without heads."""
    answers = yield Group(
        [thread_queries.next_threads(collection, tenant, behind, SCAN) for collection in calls.COLLECTIONS]
    )
    pages = [sorted(group["_id"] for group in groups) for groups in answers]
    # A page that is full says nothing of what lies behind its last thread.
    ends = [ids[-1] for ids, groups in zip(pages, answers, strict=True) if _count(groups) == SCAN]
    ids = sorted({thread_id for page in pages for thread_id in page})
    if not ends:
        return ids, None
    return [thread_id for thread_id in ids if thread_id <= min(ends)], min(ends)


def _count(groups: Iterable[Document]) -> int:
    return sum(group["count"] for group in groups)
