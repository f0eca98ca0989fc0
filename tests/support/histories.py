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

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from support.builders import checkpoint_id, config, metadata
from support.stores import Store

Key: TypeAlias = tuple[str, str]
Needs: TypeAlias = dict[Key, set[str]]
"""Checkpoints with the channels whose histories lead through them."""

SNAPSHOT_EVERY = {"log": 3, "notes": 7, "late": 2, "never": 2}
"""The delta channels, with how many updates make a snapshot due. "late" joins the graph late, "never" is not written."""
LATE_FROM = 10
PLAIN = ("x", "fat", "big", "gone")
NAMESPACES = ("", "keeps", "sub:1", "sub:2", "sub:2|in:3")
CALLS = {"sub:1": ("",), "sub:2": ("",), "sub:2|in:3": ("", "sub:2")}
"""The namespaces that belong to one call of a subgraph, with those of the checkpoints around it."""
LARGE = "v" * 80
AVOID = True
OLDEST = 60
"""Hours since the first checkpoint of a history was made."""


@dataclass
class Written:
    """A stored write."""

    channel: str
    run: str
    hidden_at: int | None = None
    is_consumed: bool = False
    """Hidden, while a checkpoint of another run is rebuilt from it."""


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
    updates: dict[str, tuple[int, int]]
    """LangGraph's counters: updates and super-steps since the last snapshot."""
    parents: dict[str, str]
    writes: dict[tuple[str, int], Written] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)
    """The channels of each task's call, to make the same one again."""
    hidden_at: int | None = None
    is_lineage: bool = False
    is_gone: bool = False
    deleted: set[str] = field(default_factory=set)
    """The channels of writes that were hidden here and are as if never made."""

    @property
    def key(self) -> Key:
        return self.ns, self.id

    @property
    def is_visible(self) -> bool:
        return not self.is_gone and self.hidden_at is None

    @property
    def rebuilt(self) -> set[str]:
        """The delta channels that have a value here which is stored elsewhere."""
        return {name for name in SNAPSHOT_EVERY if name in self.versions and name not in self.stored}

    def hidden_channels(self) -> set[str]:
        return {write.channel for write in self.writes.values() if write.hidden_at is not None}


@dataclass
class Thread:
    """All checkpoints that a thread ever had."""

    id: str
    draw: random.Random
    nodes: dict[Key, Node] = field(default_factory=dict)
    count: int = 0
    text_versions: bool = False
    root_of: dict[str, dict[str, str]] = field(default_factory=dict)
    """The checkpoints around each call of a subgraph."""

    def present(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.is_gone]

    def visible(self, ns: str | None = None) -> list[Node]:
        """The newest first."""
        some = [node for node in self.nodes.values() if node.is_visible and ns in (None, node.ns)]
        return sorted(some, key=lambda node: node.id, reverse=True)

    def has_child(self, node: Node) -> bool:
        return any(other.ns == node.ns and other.parent == node.id for other in self.nodes.values())

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
                while (parent := self.nodes.get((node.ns, node.parent or ""))) is not None:
                    node = parent
                    needed[node.key].add(channel)
                    if channel in node.stored or (node.key in starts and channel not in node.versions):
                        break
        return dict(needed)

    def behind_hidden(self) -> set[Key]:
        """The visible checkpoints whose histories lead through something that is hidden."""
        nodes = self.nodes.values()
        touched = {node.key for node in nodes if not node.is_visible or node.hidden_channels() or node.deleted}
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

    def hide_writes(self, runs: set[str], now: int) -> Iterator[tuple[Node, tuple[str, int]]]:
        """Hide these runs' writes; yields those that nothing is rebuilt from, which are as if never made."""
        needed = self.needs(node for node in self.visible() if node.run not in runs)
        for node in self.present():
            for place, write in list(node.writes.items()):
                if write.run in runs:
                    write.is_consumed |= write.channel in needed.get(node.key, ())
                    write.hidden_at = now if write.hidden_at is None else write.hidden_at
                    if not write.is_consumed:
                        yield node, place

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
        for node in whole:
            for place, write in list(node.writes.items()):
                is_over = write.hidden_at is not None and write.hidden_at <= cutoff
                if is_over and write.channel not in needed.get(node.key, ()):
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
        forced = parent.hidden_channels() if parent else set()
        if AVOID and parent:
            forced = forced | parent.deleted
        values = self._plain(thread, parent, changed)
        stored = {name for name in (parent.stored if parent else ()) if name not in changed} | values.keys()
        new = {name: versions[name] for name in changed}
        for name in graph:
            due = counters[name][0] >= SNAPSHOT_EVERY[name] or name in forced or draw.random() < 0.04
            if due and name in versions:
                new[name] = versions[name] = thread.version()
                values[name] = self._snapshot(thread, len(thread.nodes))
                counters[name] = (0, 0)
                stored.add(name)
        own_id = self._next_id(thread)
        node = Node(
            ns,
            own_id,
            parent.id if parent else None,
            run,
            created,
            versions,
            stored,
            {name: value for name, value in values.items() if name in PLAIN},
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
        non_zero = {name: count for name, count in counters.items() if count != (0, 0)}
        about = metadata(len(thread.nodes), run_id=run, parents=node.parents, counters_since_delta_snapshot=non_zero)
        where = config(thread.id, ns, node.parent)
        self.memory.put(where, copy.deepcopy(item), about, new)  # type: ignore[arg-type]  # plain dicts
        await self.store.put(where, copy.deepcopy(item), about, new)
        thread.nodes[node.key] = node
        return node

    @staticmethod
    def _changed(thread: Thread, parent: Node | None) -> set[str]:
        if parent is None:
            return {name for name in PLAIN if thread.draw.random() < 0.8}
        written = {write.channel for write in parent.writes.values() if write.hidden_at is None or write.is_consumed}
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
        """A call of a subgraph belongs to the checkpoint where it began; one that keeps its state goes from one to the next."""
        around = CALLS.get(ns, ("",) if ns else ())
        newest = {name: max((key[1] for key in thread.nodes if key[0] == name), default="none") for name in around}
        return thread.root_of.setdefault(ns, newest) if ns in CALLS else newest

    async def put_writes(self, thread: Thread, node: Node, run: str) -> None:
        """One task's writes; now and then of a task that wrote before, or that a deleted run left here."""
        draw = thread.draw
        again = sorted(node.calls)
        if again and draw.random() < 0.3:
            task = draw.choice(again)
        else:
            task = f"task-{draw.randrange(10**6)}"
            known = [name for name in ("log", "notes", "late") if name in node.versions]
            late = len(thread.nodes) >= LATE_FROM
            free = ["log", "notes", *(["late"] if late else [])] if not thread.has_child(node) else known
            channels = [*free, *free, "x", "fat", "__interrupt__", "__error__"]
            node.calls[task] = draw.sample(channels, min(draw.randrange(4), len(channels)))
        n = draw.randrange(10**6)
        writes = [(channel, f"{n}.{i}" + LARGE * (draw.random() < 0.3)) for i, channel in enumerate(node.calls[task])]
        path = f"~{sum(map(ord, task)) % 3}"
        where = {**config(thread.id, node.ns, node.id), "metadata": {"run_id": run}}
        self.memory.put_writes(where, writes, task, path)  # type: ignore[arg-type]  # a plain dict
        await self.store.put_writes(where, writes, task, path)
        for i, (channel, _) in enumerate(writes):
            place = task, WRITES_IDX_MAP.get(channel, i)
            old = node.writes.get(place)
            if old is None or place[1] < 0:
                node.writes[place] = Written(channel, run)
            else:
                old.hidden_at = None

    def forget(self, thread: Thread, writes: Iterable[tuple[Node, tuple[str, int]]]) -> None:
        """Writes of deleted runs that are as if never made."""
        for node, place in writes:
            node.deleted.add(node.writes.pop(place).channel)
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
        thread = twins.threads[name] = Thread(name, draw, text_versions=bool(seed % 2))
        for n in range(length):
            ns = "" if n == 0 else draw.choice(["", "", "", *NAMESPACES])
            if ns == "sub:2|in:3" and not thread.visible("sub:2"):
                ns = "sub:2"
            run = f"run-{n // 4}"
            node = await twins.put(thread, ns, _parent(thread, ns), run, n - OLDEST)
            for _ in range(draw.randrange(4)):
                await twins.put_writes(thread, node, run if draw.random() < 0.7 else f"run-{draw.randrange(8)}")
    return twins


def _parent(thread: Thread, ns: str) -> Node | None:
    """Mostly the last one; forks, jumps back and new beginnings."""
    known = [node for node in thread.nodes.values() if node.ns == ns]
    if not known or thread.draw.random() < 0.02:
        return None
    return known[-1] if thread.draw.random() < 0.75 else thread.draw.choice(known)
