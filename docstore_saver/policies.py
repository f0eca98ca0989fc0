"""What a prune keeps of a thread. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from docstore_saver.lineage import Key, Row

_CALL_MARK = ":"
"""LangGraph names the namespace of one call of a subgraph ``node:task_id``; one that keeps its state has no task id."""


@dataclass(frozen=True, slots=True)
class Keep:
    """In every namespace the newest `last`; beyond them what is younger than `younger_than`, and every fork's tip."""

    last: int = 1
    younger_than: timedelta | None = None
    forks: bool = False

    def going(self, rows: Iterable[Row], time: datetime) -> set[Key]:
        """The checkpoints that are, or are to be, hidden."""
        namespaces: dict[str, list[Row]] = {}
        going: set[Key] = set()
        for row in rows:
            if row.is_visible:
                namespaces.setdefault(row.checkpoint_ns, []).append(row)
            else:
                going.add(row.key)
        # A nested call's namespace is longer than that of the call around it.
        for name in sorted(namespaces, key=len):
            members = sorted(namespaces[name], key=lambda row: row.checkpoint_id, reverse=True)
            if self._call_is_over(name, members[0], going):
                going |= {row.key for row in members}
            else:
                going |= {row.key for row in members[self.last :]} - self._spared(members, time)
        return going

    @staticmethod
    def _call_is_over(name: str, newest: Row, going: set[Key]) -> bool:
        """Whether a subgraph's call belongs to a checkpoint that goes, or was hidden before.

        A parent that was never stored (a run with exit durability) says nothing.
        """
        return _CALL_MARK in name and any(key in going for key in newest.parents)

    def _spared(self, members: list[Row], time: datetime) -> set[Key]:
        spared: set[Key] = set()
        if self.younger_than is not None:
            spared |= {row.key for row in members if row.created_at > time - self.younger_than}
        if self.forks:
            inner = {row.parent_id for row in members}
            spared |= {row.key for row in members if row.checkpoint_id not in inner}
        return spared
