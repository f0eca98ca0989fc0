"""Random threads with all that retention has to respect, their twins in an InMemorySaver, and a model of what goes.

A history is generated once, put through the public methods into both savers, and then stored again from its documents
for every sequence of operations. The model knows nothing of the package: what should be visible, and what the rest is
rebuilt from, follows here from the documentation alone.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from support.builders import checkpoint_id, config, metadata
from support.stores import Store

Key: TypeAlias = tuple[str, str]
Needs: TypeAlias = dict[Key, set[str]]
"""Checkpoints with the channels whose histories lead through them."""

SNAPSHOT_EVERY = {"log": 3, "notes": 7, "late": 2, "never": 2}
"""The delta channels, with how many updates make a snapshot due. "late" joins late, "never" is not written."""
LATE_FROM = 10
PLAIN = ("x", "fat", "big", "gone")
NAMESPACES = ("", "keeps", "sub:1", "sub:2", "sub:2|in:3")
CALLS = {"sub:1": ("",), "sub:2": ("",), "sub:2|in:3": ("", "sub:2")}
"""The namespaces that belong to one call of a subgraph, with those of the checkpoints around it."""
LARGE = "v" * 80
GUESTS = ("guest-0", "guest-1", "guest-2")
"""Runs that leave writes at other runs' checkpoints, as a run does with its input."""
OLDEST = 60
"""Hours since the first checkpoint of a history was made."""


@dataclass
class Written:
    """A stored write."""

    channel: str
    run: str
    hidden_at: int | None = None
    readers: frozenset[str] = frozenset()
    """The children that its checkpoint had when it was hidden: they are still rebuilt from it."""
    is_consumed: bool = False
    """Whether a checkpoint that stayed was rebuilt from it then; no other write may take its place."""


@dataclass
class Node:
    """A checkpoint as the model knows it; times are in hours, 0 is when the sequence begins."""

    ns: str
    id: str
    parent: str | None
    run: str
    created: int
    versions: dict[str, Any]
    stored: set[str]
    values: dict[str, Any]
    """Those of the plain channels, for its children."""
    known: set[str]
    """The delta channels that were told of on the way here."""
    updates: dict[str, tuple[int, int]]
    """LangGraph's counters: updates and super-steps since the last snapshot."""
    parents: dict[str, str]
    writes: dict[tuple[str, int], Written] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)
    """The channels of each task's call, to make the same one again."""
    hidden_at: int | None = None
    is_lineage: bool = False
    is_gone: bool = False

    @property
    def key(self) -> Key:
        return self.ns, self.id

    @property
    def is_visible(self) -> bool:
        return not self.is_gone and self.hidden_at is None

    @property
    def rebuilt(self) -> set[str]:
        """The delta channels that have a value here which is stored elsewhere."""
        return {name for name in self.known if name in self.versions and name not in self.stored}

    @property
    def has_hidden_writes(self) -> bool:
        return any(write.hidden_at is not None for write in self.writes.values())


@dataclass
class Thread:
    """All checkpoints that a thread ever had."""

    id: str
    draw: random.Random
    nodes: dict[Key, Node] = field(default_factory=dict)
    count: int = 0
    text_versions: bool = False
    counts_from: int = 0
    """The first checkpoints may come from a LangGraph that told no counters."""
    root_of: dict[str, dict[str, str]] = field(default_factory=dict)
    """The checkpoints around each call of a subgraph."""

    def present(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.is_gone]

    def visible(self, ns: str | None = None) -> list[Node]:
        """The newest first."""
        some = [node for node in self.nodes.values() if node.is_visible and ns in (None, node.ns)]
        return sorted(some, key=lambda node: node.id, reverse=True)

    def children(self, node: Node) -> list[Node]:
        return [other for other in self.present() if other.ns == node.ns and other.parent == node.id]

    def parent(self, node: Node) -> Node | None:
        return None if node.parent is None else self.nodes.get((node.ns, node.parent))

    def version(self) -> Any:
        self.count += 1
        return f"{self.count:032}.0" if self.text_versions else self.count

    def needs(self, whole: Iterable[Node]) -> Needs:
        """What is behind these checkpoints, up to the values that their delta channels are rebuilt from.

        A channel that has no version at one of them was first written later; nothing of it lies behind. Of what is not
        whole no version is read, so there the way goes on to a value or to the root.
        """
        starts = {node.key: node for node in whole}
        needed: defaultdict[Key, set[str]] = defaultdict(set)
        for start in starts.values():
            for channel in start.rebuilt:
                node = start
                while (parent := self.parent(node)) is not None and not parent.is_gone:
                    node = parent
                    needed[node.key].add(channel)
                    if channel in node.stored or (node.key in starts and channel not in node.versions):
                        break
        return dict(needed)

    def behind_hidden(self) -> set[Key]:
        """The visible checkpoints whose histories lead through something that is hidden."""
        touched = {node.key for node in self.nodes.values() if not node.is_visible or node.has_hidden_writes}
        return {node.key for node in self.visible() if touched & self.needs([node]).keys()}

    # What the operations should do.

    def prune(self, now: int, last: int, younger: float | None, forks: bool) -> set[Key]:
        """The checkpoints that should be hidden by a prune."""
        going: set[Key] = set()
        for ns in sorted(NAMESPACES, key=len):
            nodes = self.visible(ns)
            if not nodes:
                continue
            around = [self.nodes[key] for key in nodes[0].parents.items() if key in self.nodes]
            call_is_over = ns in CALLS and any(
                node.key in going or (node.hidden_at is not None and not node.is_gone) for node in around
            )
            kept = set() if call_is_over else {node.key for node in nodes[:last]}
            if not call_is_over and younger is not None:
                kept |= {node.key for node in nodes if now - node.created < younger}
            if not call_is_over and forks:
                inner = {node.parent for node in nodes}
                kept |= {node.key for node in nodes if node.id not in inner}
            going |= {node.key for node in nodes} - kept
        return going

    def hide(self, keys: Iterable[Key], now: int) -> None:
        for key in keys:
            self.nodes[key].hidden_at = now

    def hide_writes(self, runs: set[str], now: int) -> None:
        """Hide what these runs left at checkpoints that stay."""
        staying = [node for node in self.visible() if node.run not in runs]
        needed = self.needs(staying)
        for node in staying:
            readers = frozenset(child.id for child in self.children(node))
            for write in node.writes.values():
                if write.run in runs and write.hidden_at is None:
                    write.hidden_at = now
                    write.readers = readers
                    write.is_consumed |= self.is_read(node, write, staying, needed)

    def is_read(self, node: Node, write: Written, whole: Iterable[Node], needed: Needs) -> bool:
        """Whether one of these checkpoints is rebuilt from a hidden write."""
        rebuilt = {other.key: other.rebuilt for other in whole}
        return any(
            write.channel in rebuilt.get((node.ns, child), ())
            or (
                write.channel in needed.get((node.ns, child), ())
                and write.channel not in self.nodes[node.ns, child].stored
            )
            for child in write.readers
        )

    def sweep(self, cutoff: int) -> Iterator[tuple[Node, tuple[str, int]]]:
        """Remove what was hidden until then; yields hidden writes that nothing is rebuilt from any more."""
        over = [
            node
            for node in self.present()
            if node.is_lineage or (node.hidden_at is not None and node.hidden_at <= cutoff)
        ]
        whole = [node for node in self.present() if node not in over]
        needed = self.needs(whole)
        for node in over:
            node.is_lineage = node.key in needed
            node.is_gone = not node.is_lineage
        for node in self.present():
            for place, write in list(node.writes.items()):
                is_over = write.hidden_at is not None and write.hidden_at <= cutoff
                if is_over and not self.is_read(node, write, whole, needed):
                    yield node, place


class Twins:
    """Threads in a saver and in an InMemorySaver, which is never pruned."""

    def __init__(self, store: Store, memory: InMemorySaver, threads: dict[str, Thread]) -> None:
        self.store, self.memory, self.threads = store, memory, threads

    async def put(self, thread: Thread, ns: str, parent: Node | None, run: str, created: int) -> Node:
        """A checkpoint such as a graph makes from its parent and the parent's writes."""
        draw = thread.draw
        changed = self._changed(thread, parent)
        versions = {**(parent.versions if parent else {}), **{name: thread.version() for name in sorted(changed)}}
        graph = [name for name in SNAPSHOT_EVERY if name != "late" or len(thread.nodes) >= LATE_FROM]
        before = parent.updates if parent else {}
        counters = {
            name: (before.get(name, (0, 0))[0] + (name in changed), before.get(name, (0, 0))[1] + 1) for name in graph
        }
        values = self._plain(thread, parent, changed)
        stored = {name for name in (parent.stored if parent else ()) if name not in changed} | values.keys()
        new = {name: versions[name] for name in changed}
        for name in graph:
            due = counters[name][0] >= SNAPSHOT_EVERY[name] or draw.random() < 0.04
            if due and name in versions:
                new[name] = versions[name] = thread.version()
                values[name] = self._snapshot(thread, len(thread.nodes))
                counters[name] = (0, 0)
                stored.add(name)
        own_id = self._next_id(thread)
        told = {name: count for name, count in counters.items() if count != (0, 0)}
        told = told if len(thread.nodes) >= thread.counts_from else {}
        node = Node(
            ns,
            own_id,
            parent.id if parent else None,
            run,
            created,
            versions,
            stored,
            {name: value for name, value in values.items() if name in PLAIN},
            {*(parent.known if parent else ()), *told, *(name for name in graph if is_snapshot(values.get(name)))},
            counters,
            self._around(thread, ns),
        )
        item = {
            "v": 4,
            "id": own_id,
            "ts": (datetime.now(UTC) + timedelta(hours=created)).isoformat(),
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {"n": new},
            "updated_channels": sorted(new),
        }
        about = metadata(len(thread.nodes), run_id=run, parents=node.parents)
        about |= {"counters_since_delta_snapshot": told} if told else {}
        where = config(thread.id, ns, node.parent)
        self.memory.put(where, copy.deepcopy(item), about, new)  # type: ignore[arg-type]  # plain dicts
        await self.store.put(where, copy.deepcopy(item), about, new)
        thread.nodes[node.key] = node
        return node

    @staticmethod
    def _changed(thread: Thread, parent: Node | None) -> set[str]:
        if parent is None:
            return {name for name in PLAIN if thread.draw.random() < 0.8}
        written = {write.channel for write in parent.writes.values() if write.hidden_at is None}
        return {name for name in written if name in SNAPSHOT_EVERY or name in PLAIN} | {
            name for name in PLAIN[:2] if thread.draw.random() < 0.4
        }

    @staticmethod
    def _plain(thread: Thread, parent: Node | None, changed: set[str]) -> dict[str, Any]:
        n = len(thread.nodes)
        values = {name: value for name, value in (parent.values if parent else {}).items() if name not in changed}
        fresh = {"x": n, "fat": f"{n} {LARGE}", "big": f"{n} {LARGE * 3}", "gone": n}
        return values | {name: fresh[name] for name in PLAIN if name in changed and not (name == "gone" and n % 2)}

    @staticmethod
    def _snapshot(thread: Thread, n: int) -> Any:
        """Now and then a plain value, small or large, as a channel has it from before it became a delta channel."""
        kind = thread.draw.random()
        if kind < 0.25:
            return [n]
        return [f"{n} {LARGE}"] if kind < 0.35 else _DeltaSnapshot([f"snapshot {n}"])

    @staticmethod
    def _next_id(thread: Thread) -> str:
        place = 16 * (len(thread.nodes) + 2)
        if thread.draw.random() < 0.12:
            place -= thread.draw.choice([24, 40])
        while any(node.id == checkpoint_id(place) for node in thread.nodes.values()):
            place += 1
        return checkpoint_id(place)

    @staticmethod
    def _around(thread: Thread, ns: str) -> dict[str, str]:
        """A call of a subgraph belongs to the checkpoint where it began; one that keeps its state goes on and on."""
        around = CALLS.get(ns, ("",) if ns else ())
        newest = {name: max((key[1] for key in thread.nodes if key[0] == name), default="none") for name in around}
        return thread.root_of.setdefault(ns, newest) if ns in CALLS else newest

    async def put_writes(self, thread: Thread, node: Node, run: str) -> None:
        """One task's writes; now and then of a task that wrote before, or whose writes went with their run."""
        draw = thread.draw
        free = self._free(thread, node)
        again = sorted(task for task, channels in node.calls.items() if not set(channels) & set(SNAPSHOT_EVERY) - free)
        hidden = sorted({task for (task, _), write in node.writes.items() if write.hidden_at is not None} & {*again})
        if again and draw.random() < (0.8 if hidden else 0.2):
            task = draw.choice(hidden or again)
        else:
            task = f"task-{draw.randrange(10**6)}"
            channels = [*sorted(free), *sorted(free), "x", "fat", "__interrupt__", "__error__"]
            node.calls[task] = draw.sample(channels, draw.randrange(4))
        n = draw.randrange(10**6)
        writes = [(channel, f"{n}.{i}" + LARGE * (draw.random() < 0.3)) for i, channel in enumerate(node.calls[task])]
        for i, (channel, _) in enumerate(writes):
            self._take_place(thread, node, (task, WRITES_IDX_MAP.get(channel, i)), Written(channel, run))
        path = f"~{sum(map(ord, task)) % 3}"
        where = {**config(thread.id, node.ns, node.id), "metadata": {"run_id": run}}
        self.memory.put_writes(where, writes, task, path)  # type: ignore[arg-type]  # a plain dict
        await self.store.put_writes(where, writes, task, path)

    @staticmethod
    def _free(thread: Thread, node: Node) -> set[str]:
        """Delta channels that a task may write: behind a checkpoint without a version nothing of them comes to be."""
        late = {"late"} if len(thread.nodes) >= LATE_FROM else set()
        names = {"log", "notes"} | late
        return names & node.versions.keys() if thread.children(node) else names

    def _take_place(self, thread: Thread, node: Node, place: tuple[str, int], new: Written) -> None:
        """The first write wins, unless it is hidden and nothing is rebuilt from it; a special one always gives way."""
        old = node.writes.get(place)
        if old is None or place[1] < 0 or (old.hidden_at is not None and not old.is_consumed):
            self.memory.writes.get((thread.id, node.ns, node.id), {}).pop(place, None)
            node.writes[place] = new
        else:
            old.hidden_at = None

    def history(self, thread: Thread, node: Node) -> dict[str, Any]:
        """What each delta channel of a checkpoint is rebuilt from: the twin's own answer.

        Where writes are hidden on the way, those that count for the child there; the twin knows no hidden ones.
        """
        where: Any = config(thread.id, node.ns, node.id)
        found: Any = self.memory.get_delta_channel_history(config=where, channels=sorted(node.rebuilt))
        for channel, part in found.items():
            every, counting = self._writes_behind(thread, node, channel)
            assert part["writes"] == every
            part["writes"] = counting
        return dict(found)

    def _writes_behind(self, thread: Thread, node: Node, channel: str) -> tuple[list[Any], list[Any]]:
        """All writes along the way, oldest first, and those that count for its checkpoint."""
        every: list[Any] = []
        counting: list[Any] = []
        while (parent := thread.parent(node)) is not None:
            here = [
                (place, (task, name, self.memory.serde.loads_typed(value)))
                for place, (task, name, value, _) in self.stored_writes(thread, parent)
                if name == channel
            ]
            every = [item for _, item in here] + every
            counting = [item for place, item in here if self._counts(parent.writes[place], node)] + counting
            node = parent
            if channel in node.stored:
                break
        return every, counting

    @staticmethod
    def _counts(write: Written, child: Node) -> bool:
        return write.hidden_at is None or child.id in write.readers

    def stored_writes(self, thread: Thread, node: Node) -> list[tuple[tuple[str, int], Any]]:
        """The twin's writes at a checkpoint, in LangGraph's order."""
        stored = self.memory.writes.get((thread.id, node.ns, node.id), {})
        return sorted(stored.items(), key=lambda item: writes_sort_key(item[1][3], *item[0]))

    def pending(self, thread: Thread, node: Node) -> list[Any]:
        """The writes that a reader should see: none of a deleted run, and none of a call that is there in part."""
        seen = {place for place, write in node.writes.items() if write.hidden_at is None}
        for task, channels in node.calls.items():
            regular = {(task, i) for i, channel in enumerate(channels) if channel not in WRITES_IDX_MAP}
            seen -= set() if regular <= seen else regular
        return [
            (task, channel, self.memory.serde.loads_typed(value))
            for place, (task, channel, value, _) in self.stored_writes(thread, node)
            if place in seen
        ]

    def forget(self, thread: Thread, writes: Iterable[tuple[Node, tuple[str, int]]]) -> None:
        """Writes of deleted runs that nothing is rebuilt from any more."""
        for node, place in writes:
            del node.writes[place]
            del self.memory.writes[thread.id, node.ns, node.id][place]

    def copy(self, source: Thread, target: str) -> None:
        """The same under another thread's id."""
        self.threads[target] = replace_id(source, target)
        memory = self.memory
        memory.storage[target] = copy_storage(memory.storage[source.id])
        for key, writes in list(memory.writes.items()):
            if key[0] == source.id:
                memory.writes[target, key[1], key[2]] = dict(writes)
        memory.blobs.update({(target, *key[1:]): blob for key, blob in memory.blobs.items() if key[0] == source.id})


def is_snapshot(value: Any) -> bool:
    return isinstance(value, _DeltaSnapshot)


def replace_id(thread: Thread, target: str) -> Thread:
    other = copy.deepcopy(thread)
    other.id = target
    return other


def copy_storage(storage: Any) -> Any:
    return defaultdict(dict, {ns: dict(known) for ns, known in storage.items()})


def copy_memory(memory: InMemorySaver) -> InMemorySaver:
    other = InMemorySaver()
    for thread, storage in memory.storage.items():
        other.storage[thread] = copy_storage(storage)
    other.writes.update({key: dict(writes) for key, writes in memory.writes.items()})
    other.blobs.update(memory.blobs)
    return other


async def load(store: Store, seed: int) -> Twins:
    """Thread "a" of some twenty checkpoints and thread "b" of a few, which share runs."""
    draw = random.Random(seed)
    twins = Twins(store, InMemorySaver(), {})
    for name, length in (("a", 26), ("b", 6)):
        thread = twins.threads[name] = Thread(
            name, draw, text_versions=bool(seed % 2), counts_from=8 if seed % 4 == 1 else 0
        )
        for n in range(length):
            ns = "" if n == 0 else draw.choice(["", "", "", *NAMESPACES])
            if ns == "sub:2|in:3" and not thread.visible("sub:2"):
                ns = "sub:2"
            run = f"run-{n // 4}"
            node = await twins.put(thread, ns, _parent(thread, ns), run, n - OLDEST)
            for _ in range(draw.randrange(4)):
                await twins.put_writes(thread, node, run if draw.random() < 0.6 else draw.choice(GUESTS))
    return twins


def _parent(thread: Thread, ns: str) -> Node | None:
    """Mostly the last one; forks, jumps back and new beginnings."""
    known = [node for node in thread.nodes.values() if node.ns == ns]
    if not known or thread.draw.random() < 0.02:
        return None
    return known[-1] if thread.draw.random() < 0.75 else thread.draw.choice(known)
