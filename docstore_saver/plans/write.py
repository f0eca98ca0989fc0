"""put and put_writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from docstore_saver import calls, facets, queries
from docstore_saver.calls import LARGE_BYTES, Compute, Document, DuplicateKeys, Group, Plan
from docstore_saver.codec import EMPTY, Typed, looks_large, pack_channels
from docstore_saver.documents import (
    Place,
    Reference,
    bson_time,
    checkpoint_context,
    checkpoint_key,
    common_fields,
    is_text,
    now,
    parents_list,
    random_id,
    version_text,
    write_context,
    write_key,
)
from docstore_saver.errors import IncompleteCheckpointError
from docstore_saver.plans import heads, ttl, values
from docstore_saver.state import Head, Scope

INLINE_BYTES = 64 * 1024
"""What one checkpoint document holds inline, all together."""
_WORTH_MOVING = 512
_INT64_BITS = 64
_MOST_STEPS = 2**31


@dataclass(frozen=True, slots=True)
class Task:
    """Whose writes they are."""

    task_id: str
    task_path: str
    run_id: str | None


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """The arguments of put, checked."""

    place: Place
    parent_id: str | None
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    new_versions: Mapping[str, Any]
    run_id: str | None

    @property
    def channel_values(self) -> Mapping[str, Any]:
        values: Mapping[str, Any] = self.checkpoint["channel_values"]
        return values

    @property
    def versions(self) -> Mapping[str, Any]:
        versions: Mapping[str, Any] = self.checkpoint["channel_versions"]
        return versions


def put(scope: Scope, new: NewCheckpoint) -> Plan[None]:
    """Store a checkpoint: values first, then the document that refers to them."""
    parent = heads.NO_HEAD
    if new.parent_id is not None:
        parent = yield from heads.head_of(scope, new.place.at(new.parent_id))
    stamp = yield from ttl.keep_alive(scope, new.place, is_root=new.parent_id is None)
    kept = yield from _inherited_references(scope, new, parent)
    batch = values.ValueBatch(scope, new.place, stamp)
    refs, inline = yield from _store_values(scope, new, batch, kept, _inherited_inline(new, parent))
    stored = sorted({*refs, *inline})
    fields = yield from _serialise(scope, new, inline)
    spilled = yield from _spill(batch, fields)
    yield from batch.flush()

    document = _document(scope, new, parent, stamp, stored, [*refs.values(), *spilled])
    seal = partial(_seal, scope, document, fields)
    yield Compute(seal, large=scope.codec.seals and sum(len(data) for _, data in fields.values()) > LARGE_BYTES)
    try:
        yield calls.insert_one("checkpoints", document)
    except DuplicateKeys:
        yield calls.replace_one("checkpoints", queries.by_id(document), document)
    heads.remember(scope, document, new.versions, inline)


def put_writes(scope: Scope, place: Place, writes: Sequence[tuple[str, Any]], task: Task) -> Plan[None]:
    """Store a task's writes. The first write of (task, idx) wins; special channels replace."""
    stamp = ttl.stamp(scope)
    batch = values.ValueBatch(scope, place, stamp)
    documents: dict[int, Document] = {}
    regular = sum(channel not in WRITES_IDX_MAP for channel, _ in writes)
    for position, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, position)
        typed = yield Compute(partial(scope.codec.dumps, value), large=looks_large(value))
        reference = None
        if len(typed[1]) >= scope.inline_limit:
            reference = yield from batch.add("write", channel, None, typed)
            typed = EMPTY
        document: Document = {
            "_id": write_key(place, task.task_id, idx),
            **common_fields(place, stamp),
            "checkpoint_id": place.checkpoint_id,
            "task_id": task.task_id,
            "task_path": task.task_path,
            "idx": idx,
            "of": regular,
            "channel": channel,
            "ref": reference.to_document() if reference else None,
            "run_id": task.run_id,
            "created_at": now(),
        }
        document["value"] = scope.codec.seal(typed, write_context(document))
        document["size"] = len(document["value"]["data"])
        documents[idx] = document
    yield from batch.flush()
    for some in _batches(list(documents.values())):
        yield from _insert_writes(some)


def _insert_writes(documents: list[Document]) -> Plan[None]:
    try:
        yield calls.insert_many("writes", documents)
    except DuplicateKeys as duplicates:
        known = [documents[i] for i in duplicates.indexes]
        special = [document for document in known if document["idx"] < 0]
        if special:
            yield Group([calls.replace_one("writes", queries.by_id(doc), doc) for doc in special])
        regular = [document for document in known if document["idx"] >= 0]
        if regular:
            yield from _show(regular)


def _show(documents: list[Document]) -> Plan[None]:
    """A write that a deleted run left at this checkpoint is as none: the new one takes its place.

    Unless a checkpoint of another run is rebuilt from it; then the first write wins, as ever.
    """
    found = yield queries.hidden_writes(documents)
    kept = {row["_id"]: row.get("lineage") for row in found}
    for document in documents:
        hidden = {**queries.by_id(document), "hidden_at": {"$ne": None}}
        if document["_id"] not in kept:
            continue
        if kept[document["_id"]]:
            yield calls.update_many("writes", hidden, {"$set": {"hidden_at": None, "read_by": None}})
        else:
            yield calls.replace_one("writes", {**hidden, "lineage": None}, document, upsert=False)


def _batches(documents: list[Document]) -> list[list[Document]]:
    """Runs of documents that fit one command (an ordinary call is one)."""
    batches: list[list[Document]] = []
    room = 0
    for document in documents:
        if not batches or document["size"] > room:
            batches.append([])
            room = values.BATCH_BYTES
        batches[-1].append(document)
        room -= document["size"]
    return batches


def _inherited_references(scope: Scope, new: NewCheckpoint, parent: Head) -> Plan[dict[str, Reference]]:
    """The parent's references for every channel that did not change, claimed against collection."""
    kept = {channel: ref for channel, ref in parent.refs.items() if _is_unchanged(new, channel, ref.version)}
    missing = yield from values.touch(scope, new.place, kept.values())
    lost = {channel for channel, ref in kept.items() if ref.value_id in missing}
    unknown = sorted(lost - set(new.channel_values))
    if unknown:
        raise IncompleteCheckpointError(
            f"The stored values of {unknown} are missing from the parent checkpoint {new.parent_id!r}, and the new "
            "checkpoint does not carry them, so it was not stored. check(repair=True) finds such checkpoints."
        )
    return {channel: ref for channel, ref in kept.items() if channel not in lost}


def _is_unchanged(new: NewCheckpoint, channel: str, version: str) -> bool:
    return (
        channel in new.versions and channel not in new.new_versions and version == version_text(new.versions[channel])
    )


def _store_values(
    scope: Scope, new: NewCheckpoint, batch: values.ValueBatch, kept: dict[str, Reference], inherited: dict[str, Typed]
) -> Plan[tuple[dict[str, Reference], dict[str, Typed]]]:
    """Serialise what is new: large values and snapshots to the batch, the rest inline."""
    refs, inline = dict(kept), dict(inherited)
    for channel, value in new.channel_values.items():
        if channel in kept or channel in inherited:
            continue
        typed = yield Compute(partial(scope.codec.dumps, value), large=looks_large(value))
        if len(typed[1]) >= scope.inline_limit or isinstance(value, _DeltaSnapshot):
            refs[channel] = yield from batch.add("channel", channel, new.versions.get(channel), typed)
        else:
            inline[channel] = typed
    room = INLINE_BYTES - sum(len(data) for _, data in inline.values())
    for channel in sorted(inline, key=lambda name: -len(inline[name][1])):
        if room >= 0 or len(inline[channel][1]) < _WORTH_MOVING:
            break
        typed = inline.pop(channel)
        room += len(typed[1])
        refs[channel] = yield from batch.add("channel", channel, new.versions.get(channel), typed)
    return refs, inline


def _inherited_inline(new: NewCheckpoint, parent: Head) -> dict[str, Typed]:
    """The parent's serialised values of channels that did not change.

    Also where put got the value: a live object may have changed since (a barrier's set, while a put of an earlier step
    was waiting), but its version says what it was.
    """
    return {
        channel: typed for channel, (version, typed) in parent.inline.items() if _is_unchanged(new, channel, version)
    }


def _serialise(scope: Scope, new: NewCheckpoint, inline: dict[str, Typed]) -> Plan[dict[str, Typed]]:
    core = {name: value for name, value in new.checkpoint.items() if name != "channel_values"}
    metadata = dict(new.metadata)
    return {
        "core": (yield Compute(partial(scope.codec.dumps, core))),
        "values": pack_channels(inline),
        "metadata": (yield Compute(partial(scope.codec.dumps, metadata), large=looks_large(metadata))),
    }


def _spill(batch: values.ValueBatch, fields: dict[str, Typed]) -> Plan[list[Reference]]:
    """Move whole fields to the values collection until the document is lean."""
    spilled = []
    for name in ("metadata", "core", "values"):
        too_much = sum(len(data) for _, data in fields.values()) > INLINE_BYTES
        if too_much and len(fields[name][1]) >= _WORTH_MOVING:
            spilled.append((yield from batch.add(name, "", None, fields[name])))
            fields[name] = EMPTY
    return spilled


def _document(
    scope: Scope,
    new: NewCheckpoint,
    parent: Head,
    stamp: datetime | None,
    stored: list[str],
    refs: list[Reference],
) -> Document:
    place, metadata = new.place, new.metadata
    facets_by, carried = facets.facets(metadata, scope.codec.digest)
    document: Document = {
        "_id": checkpoint_key(place),
        **common_fields(place, stamp),
        "checkpoint_id": place.checkpoint_id,
        "parent_checkpoint_id": new.parent_id,
        "put_id": random_id(),
        "parents": parents_list(metadata.get("parents")),
        "run_id": new.run_id,
        "source": _exact(metadata.get("source"), str),
        "step": _exact(metadata.get("step"), int),
        "created_at": _created_at(new.checkpoint.get("ts")),
        "stored": stored,
        "refs": [ref.to_document() for ref in refs],
        "delta": _delta(new, parent),
        "facets": carried,
        "facets_by": facets_by,
    }
    if scope.indexed and scope.codec.digest and facets_by != facets.NONE:
        document["indexed"] = facets.indexed(metadata, scope.indexed, scope.codec.digest)
    return document


def _seal(scope: Scope, document: Document, fields: dict[str, Typed]) -> None:
    if scope.codec.binds:
        fields = {**fields, "link": EMPTY}
    for name, typed in fields.items():
        document[name] = scope.codec.seal(typed, checkpoint_context(document, name))
    document["size"] = sum(len(document[name]["data"]) for name in fields)


def _delta(new: NewCheckpoint, parent: Head) -> list[Document]:
    """Every delta channel of this path, with its super-steps since the last snapshot.

    The counters alone do not tell: they vanish after one run of a graph without the channel.
    """
    steps = {channel: count + 1 for channel, count in parent.delta.items()}
    counters = new.metadata.get("counters_since_delta_snapshot")
    if isinstance(counters, Mapping):
        steps.update({name: _supersteps(count) for name, count in counters.items() if is_text(name)})
    for channel, value in new.channel_values.items():
        if isinstance(value, _DeltaSnapshot):
            steps[channel] = 0
    return [{"channel": channel, "steps": steps[channel]} for channel in sorted(steps)]


def _supersteps(counter: Any) -> int:
    try:
        return min(max(0, int(counter[1])), _MOST_STEPS)
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        return 0


def _exact(value: Any, kind: type[str | int]) -> str | int | None:
    """The value where it is exactly of this kind and BSON can hold it: these fields are for tools only."""
    if type(value) is not kind:
        return None
    fits = is_text(value) if isinstance(value, str) else value.bit_length() < _INT64_BITS
    return value if fits else None


def _created_at(ts: Any) -> datetime:
    try:
        return bson_time(datetime.fromisoformat(ts))
    except (TypeError, ValueError, OverflowError):
        return now()
