"""Which ancestors a checkpoint is rebuilt from: the rows of one thread, and walks over them. No I/O, no document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

Key: TypeAlias = tuple[str, str]
"""(checkpoint_ns, checkpoint_id) of a checkpoint, within one thread."""

Through: TypeAlias = Mapping[Key, AbstractSet[str]]
"""For some checkpoints, channels whose history starts there, or leads through there."""


@dataclass(frozen=True, slots=True)
class Row:
    """What retention knows of a checkpoint: everything but its state."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    parents: tuple[Key, ...]
    """The checkpoints that a subgraph's call belongs to."""
    run_id: str | None
    stored: frozenset[str]
    delta: frozenset[str]
    channels: Mapping[str, str]
    """The channels that are stored as values of their own -> value_id."""
    fields: Mapping[str, str]
    """`core`, `values`, `metadata` where they are values of their own -> value_id."""
    created_at: datetime
    active_at: datetime | None
    put_id: str
    size: int
    hidden_at: datetime | None = None
    lineage: frozenset[str] | None = None
    """Set for what is kept only for its descendants: the channels whose value here is their seed."""
    landing: str | None = None
    is_sealed: bool = False

    @property
    def key(self) -> Key:
        return self.checkpoint_ns, self.checkpoint_id

    @property
    def parent_key(self) -> Key | None:
        return None if self.parent_id is None else (self.checkpoint_ns, self.parent_id)

    @property
    def is_visible(self) -> bool:
        return self.hidden_at is None

    def value_ids(self) -> set[str]:
        """The values that this checkpoint needs to be read, or, as lineage, to be walked over."""
        if self.lineage is None:
            return {*self.channels.values(), *self.fields.values()}
        seeds = {self.channels[channel] for channel in self.lineage if channel in self.channels}
        inline = not self.lineage <= self.channels.keys()
        fields = {"core", "values"} if inline else {"core"}
        return seeds | {value_id for field, value_id in self.fields.items() if field in fields}


Rows: TypeAlias = Mapping[Key, Row]


def walk(rows: Rows, starts: Through, stop: Callable[[Key], bool] = lambda _: False) -> dict[Key, set[str]]:
    """Follow each start's channels through its ancestors, up to the first that stores the channel (its seed, included).

    A walk ends where `stop` says, where a parent is missing, and where it has been before.
    """
    through: defaultdict[Key, set[str]] = defaultdict(set)
    for start, channels in starts.items():
        wanted, key = set(channels), rows[start].parent_key
        while key is not None and key in rows:
            wanted -= through.get(key, frozenset())
            if not wanted:
                break
            through[key] |= wanted
            if stop(key):
                break
            wanted -= rows[key].stored
            key = rows[key].parent_key
    return dict(through)


def flowing(row: Row, through: Through, *, is_whole: bool) -> AbstractSet[str]:
    """The channels whose histories lead from a checkpoint on to its parent."""
    own = row.delta if is_whole else frozenset[str]()
    return (own | through.get(row.key, frozenset())) - row.stored


def children(rows: Rows) -> dict[Key, list[str]]:
    """For each parent the ids of its children."""
    found: dict[Key, list[str]] = {}
    for row in rows.values():
        if row.parent_key is not None:
            found.setdefault(row.parent_key, []).append(row.checkpoint_id)
    return found


def all_histories(rows: Rows, whole: Iterable[Key]) -> dict[Key, set[str]]:
    """Where the histories of these checkpoints lead through, as far as their plain fields tell.

    A delta channel that was never written counts too: only the sealed versions tell it from one that was.
    """
    return walk(rows, {key: rows[key].delta - rows[key].stored for key in whole})


def borders(rows: Rows, whole: AbstractSet[Key], through: Through) -> dict[Key, AbstractSet[str]]:
    """The whole checkpoints whose parent is to go, with the channels that may be rebuilt from behind it."""
    found: dict[Key, AbstractSet[str]] = {}
    for key in whole:
        row = rows[key]
        channels = flowing(row, through, is_whole=True)
        if channels and row.parent_key in rows and row.parent_key not in whole:
            found[key] = channels
    return found
