"""Delta history: the writes of a channel along the parent chain, down to the nearest stored value.

Three ways to find the chain, with equal answers: `scan` reads pages of links newest first, `graph_lookup` lets the
server follow them, `auto` scans while the chain runs straight and looks up what lies behind a jump. The chain follows
parent links only: ids are not always in the order of the chain (forks, clocks of several hosts), and it ends at a
missing ancestor and before an ancestor that it has met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from docstore_saver import queries
from docstore_saver.calls import LARGE_BYTES, Call, Compute, Document, Group, Plan
from docstore_saver.codec import unpack_channels
from docstore_saver.dialects import TOO_MUCH_CODES
from docstore_saver.documents import Place, Reference, references, require_format
from docstore_saver.errors import IncompleteCheckpointError, StorageError, UnsupportedByServerError
from docstore_saver.plans import heads, landing, values
from docstore_saver.plans.read import decode, read_write, row_bytes, sorted_writes
from docstore_saver.state import Scope

FIRST_PAGE = 128
MOST_PAGE = 2048
MOST_DEPTH = 256
"""Ancestors a round of $graphLookup may find: it keeps whole documents of up to 64 KB in 100 MB of memory."""
MOST_IDS = 5000


@dataclass
class Chain:
    """What is known of the way from a checkpoint up to the seeds of its channels."""

    place: Place
    next_id: str | None
    """The ancestor to visit next."""
    remaining: set[str]
    """Channels without a seed yet."""
    ids: dict[str, list[str]] = field(default_factory=dict)
    """For each channel its ancestors, nearest first, the seed's own included."""
    seeds: dict[str, Document] = field(default_factory=dict)
    """For each channel the link document that has its value."""
    seen: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)
    """Channels whose chain ended at an ancestor that does not exist, and its id."""

    def visit(self, link: Document) -> None:
        """Take the next ancestor into the chain."""
        require_format(link)
        self.seen.add(link["checkpoint_id"])
        for channel in self.remaining:
            self.ids.setdefault(channel, []).append(link["checkpoint_id"])
        for channel in self.remaining.intersection(link["stored"]):
            self.seeds[channel] = link
            self.remaining.discard(channel)
        parent = link["parent_checkpoint_id"]
        self.next_id = parent if parent not in self.seen else None

    @property
    def is_done(self) -> bool:
        return self.next_id is None or not self.remaining


def history(scope: Scope, place: Place, channels: Sequence[str]) -> Plan[Mapping[str, DeltaChannelHistory]]:
    """`BaseCheckpointSaver.get_delta_channel_history`."""
    if not channels:
        return {}
    chain, page = yield from _start(scope, place, channels)
    if chain is not None and not chain.is_done:
        if _by_lookup_alone(scope):
            yield from _look_up_or_scan(scope, chain, [])
        else:
            yield from _scan(scope, chain, page)
        yield from _require_whole(scope, chain)
    return (yield from _collect(scope, chain, channels))


def _by_lookup_alone(scope: Scope) -> bool:
    return scope.delta_strategy == "graph_lookup" and scope.dialect.graph_lookup


def _start(scope: Scope, place: Place, channels: Sequence[str]) -> Plan[tuple[Chain | None, list[Document]]]:
    """Find the target; a scan gets the first page of its ancestors with it."""
    limit = 1 if _by_lookup_alone(scope) else FIRST_PAGE
    page: list[Document] = yield queries.links(place, place.checkpoint_id or None, limit)
    unlanded = yield from landing.unfinished(place.tenant, page)
    if place.checkpoint_id:
        found = page[:1] if page and page[0]["checkpoint_id"] == place.checkpoint_id else []
    else:
        found = [link for link in page if not link.get("hidden_at") and landing.of(link) not in unlanded][:1]
        if page and not found:
            found = yield queries.checkpoint_alone(place, [name for _, name in sorted(unlanded)])
    if not found:
        return None, []
    target = found[0]
    chain = Chain(
        place.at(target["checkpoint_id"]), target["parent_checkpoint_id"], set(channels), seen={target["checkpoint_id"]}
    )
    if chain.next_id in chain.seen:
        chain.next_id = None
    return chain, page


def _scan(scope: Scope, chain: Chain, page: list[Document]) -> Plan[None]:
    """Follow the links through pages in the order of ids; seek where the next parent is not in sight."""
    size = FIRST_PAGE
    while True:
        before = len(chain.seen)
        in_sight = {link["checkpoint_id"]: link for link in page}
        while not chain.is_done and chain.next_id in in_sight:
            chain.visit(in_sight[chain.next_id])
        if chain.is_done:
            return
        is_straight = len(chain.seen) - before >= len(page) // 2
        if page and not is_straight and scope.delta_strategy == "auto" and scope.dialect.graph_lookup:
            yield from _look_up_or_scan(scope, chain, page)
            return
        size = min(size * 4, MOST_PAGE) if is_straight else FIRST_PAGE
        wanted = chain.next_id
        page = yield queries.links(chain.place, wanted, size)
        if not page or page[0]["checkpoint_id"] != wanted:
            chain.missing = dict.fromkeys(chain.remaining, str(wanted))
            return


def _look_up_or_scan(scope: Scope, chain: Chain, page: list[Document]) -> Plan[None]:
    """`$graphLookup`, and the scan where the server cannot do it or meets a limit."""
    try:
        yield from _look_up(scope, chain)
    except UnsupportedByServerError:
        scope.state.dialect = replace(scope.dialect, graph_lookup=False)
        yield from _scan(replace(scope, delta_strategy="scan"), chain, page)
    except StorageError as error:
        if error.code not in TOO_MUCH_CODES:
            raise
        yield from _scan(replace(scope, delta_strategy="scan"), chain, page)


def _look_up(scope: Scope, chain: Chain) -> Plan[None]:
    """The server follows the links, for each channel up to the checkpoint that holds its value."""
    rounds = dict.fromkeys(sorted(chain.remaining), chain.next_id)
    found: dict[str, list[Document]] = {channel: [] for channel in rounds}
    ends: dict[str, str] = {}
    while rounds:
        calls = [_ancestors(scope, chain.place, start, channel) for channel, start in rounds.items() if start]
        for (channel, start), links in zip(list(rounds.items()), (yield Group(calls)), strict=True):
            del rounds[channel]
            met = chain.seen | {link["checkpoint_id"] for link in found[channel]}
            following = _follow(start, links, met)
            found[channel] += following
            end = following[-1]["parent_checkpoint_id"] if following else start
            if end is None or end in met or end in {link["checkpoint_id"] for link in following}:
                continue
            if len(links) >= MOST_DEPTH:
                rounds[channel] = end
            else:
                ends[channel] = end
    seeds: dict[str, Document] = {}
    if ends:
        rows = yield queries.links_by_id(chain.place, sorted(set(ends.values())))
        seeds = {row["checkpoint_id"]: row for row in rows}
    # Nothing of the chain is changed before the last answer is in: a failed look-up leaves it to the scan.
    for channel, links in found.items():
        ids = chain.ids.setdefault(channel, [])
        ids += [link["checkpoint_id"] for link in links]
        seed = seeds.get(ends.get(channel, ""))
        if seed is not None:
            require_format(seed)
            ids.append(seed["checkpoint_id"])
            chain.seeds[channel] = seed
        elif channel in ends:
            chain.missing[channel] = ends[channel]
    chain.remaining.clear()


def _ancestors(scope: Scope, place: Place, start: str, channel: str) -> Call:
    return queries.ancestors(place, start, channel, scope.names["checkpoints"], MOST_DEPTH)


def _follow(start: str | None, links: list[Document], met: set[str]) -> list[Document]:
    """The chain from `start` among the ancestors found, without running in a circle."""
    by_id = {link["checkpoint_id"]: link for link in links}
    following: list[Document] = []
    seen = set(met)
    while start is not None and start in by_id and start not in seen:
        seen.add(start)
        require_format(by_id[start])
        following.append(by_id[start])
        start = by_id[start]["parent_checkpoint_id"]
    return following


def _require_whole(scope: Scope, chain: Chain) -> Plan[None]:
    """A chain that breaks off is LangGraph's business, unless it loses what a delta channel is rebuilt from."""
    if not chain.missing:
        return
    for target in (yield queries.head(chain.place)):
        needed = {entry["channel"] for entry in target["delta"]} - set(target["stored"])
        for channel in sorted(needed & chain.missing.keys()):
            if not (yield from _is_first_written_here(scope, chain, channel)):
                raise IncompleteCheckpointError(
                    f"The delta channel {channel!r} is rebuilt from checkpoint {chain.missing[channel]!r}, which does "
                    "not exist any more. The state cannot be restored whole, so none is given. check(repair=True) "
                    "removes checkpoints that cannot be completed."
                )


def _is_first_written_here(scope: Scope, chain: Chain, channel: str) -> Plan[bool]:
    """Whether the channel had no version yet at the last checkpoint before the gap: then nothing lay behind it."""
    ids = chain.ids.get(channel)
    rows = yield queries.head(chain.place.at(ids[-1]) if ids else chain.place)
    if not rows:
        return False
    core = yield from heads.open_field(scope, rows[0], "core")
    return channel not in scope.codec.loads(core)["channel_versions"]


def _collect(scope: Scope, chain: Chain | None, channels: Sequence[str]) -> Plan[Mapping[str, DeltaChannelHistory]]:
    """The writes along the chain, oldest first, and the seeds; all that does not depend on one another together."""
    result: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
    if chain is None:
        return result
    seed_refs, inline = _seed_references(chain)
    every = list(dict.fromkeys(ancestor for ids in chain.ids.values() for ancestor in ids))
    chunks = [every[at : at + MOST_IDS] for at in range(0, len(every), MOST_IDS)]
    calls = [queries.delta_writes(chain.place, chunk, channels) for chunk in chunks]
    calls += [queries.whole_checkpoint(chain.place.at(seed)) for seed in sorted(set(inline.values()))]
    located = [(chain.place.thread_id, ref) for ref in seed_refs.values()]
    seeds, answers = yield from values.load_beside(scope, chain.place.tenant, located, partial(decode, scope), calls)
    rows = [row for answer in answers[len(chunks) :] for row in answer]
    for channel, ref in seed_refs.items():
        result[channel]["seed"] = seeds[chain.place.thread_id, ref.value_id]
    if len(rows) < len(set(inline.values())):
        raise IncompleteCheckpointError(f"The stored values of {sorted(inline)} were deleted while they were read.")
    for row in rows:
        wanted = [channel for channel, seed in inline.items() if seed == row["checkpoint_id"]]
        for channel, value in (yield from _inline_seeds(scope, row, wanted)).items():
            result[channel]["seed"] = value
    writes = [write for answer in answers[: len(chunks)] for write in answer]
    for channel, replayed in (yield from _replay(scope, chain, writes)).items():
        result[channel]["writes"] = replayed
    return result


def _seed_references(chain: Chain) -> tuple[dict[str, Reference], dict[str, str]]:
    """Where the seeds lie: by reference, or inline in a checkpoint."""
    refs: dict[str, Reference] = {}
    inline: dict[str, str] = {}
    for channel, link in chain.seeds.items():
        ref = next((ref for ref in references(link) if ref.field == "channel" and ref.channel == channel), None)
        if ref is not None:
            refs[channel] = ref
        else:
            inline[channel] = link["checkpoint_id"]
    return refs, inline


def _inline_seeds(scope: Scope, row: Document, channels: Sequence[str]) -> Plan[dict[str, Any]]:
    inline = unpack_channels((yield from heads.open_field(scope, row, "values")))
    return {channel: scope.codec.loads(inline[channel]) for channel in channels}


def _was_read_by(write: Document, child: str) -> bool:
    """A deleted run's write counts for the children that had been stored when it was hidden, and for no later one."""
    return write.get("hidden_at") is None or child in (write.get("read_by") or ())


def _replay(scope: Scope, chain: Chain, writes: list[Document]) -> Plan[dict[str, list[PendingWrite]]]:
    """Each channel's writes in the order of the chain, oldest first."""
    by_id: dict[str, list[Document]] = {}
    for write in sorted_writes(writes):
        by_id.setdefault(write["checkpoint_id"], []).append(write)
    located = [(write["thread_id"], Reference.from_document(write["ref"])) for write in writes if write["ref"]]
    typed = yield from values.load(scope, chain.place.tenant, located, values.as_stored)

    def value_of(ref: Reference) -> Any:
        return scope.codec.loads(typed[chain.place.thread_id, ref.value_id])

    def replay(ids: Sequence[str], channel: str) -> list[PendingWrite]:
        below = [chain.place.checkpoint_id, *ids][: len(ids)]
        return [
            read_write(scope, write, value_of)
            for ancestor, child in zip(reversed(ids), reversed(below), strict=True)
            for write in by_id.get(ancestor, ())
            if write["channel"] == channel and _was_read_by(write, child)
        ]

    large = sum(row_bytes(write) for write in writes) > LARGE_BYTES
    result = {}
    for channel, ids in chain.ids.items():
        result[channel] = yield Compute(partial(replay, ids, channel), large=large)
    return result
