"""The shape of every document: docs/format.md in code. The only module that spells how identifiers become `_id`s."""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import ormsgpack
from bson.code import Code

from docstore_saver.calls import Document
from docstore_saver.errors import FormatVersionError

FORMAT = 1
_KEY_CHARACTERS = 22

Payload: TypeAlias = dict[str, Any]
"""``{"type": str, "data": bytes}``, and ``cipher`` where it is sealed: one value as it is stored."""

Version: TypeAlias = str | int | float | None


class Place(NamedTuple):
    """The address of a checkpoint; without `checkpoint_id`, of a namespace."""

    tenant: str
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str = ""

    def at(self, checkpoint_id: str) -> Place:
        return self._replace(checkpoint_id=checkpoint_id)


@dataclass(frozen=True, slots=True)
class Reference:
    """Points from a checkpoint or a write to a value in the values collection."""

    field: str
    channel: str
    version: str
    value_id: str
    parts: int
    size: int

    def to_document(self) -> Document:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_document(cls, document: Document) -> Reference:
        return cls(**{name: document[name] for name in cls.__slots__})


def digest(*parts: str) -> str:
    """128 bits of SHA-256 over the parts, each prefixed with its length; 22 characters of URL-safe base64."""
    raw = hashlib.sha256(ormsgpack.packb(list(parts))).digest()[:16]
    return urlsafe_b64encode(raw)[:_KEY_CHARACTERS].decode()


# Every document of a thread starts with these; a run asks for the same few all the time.
_cached_digest = lru_cache(maxsize=4096)(digest)


def thread_key(tenant: str, thread_id: str) -> str:
    return _cached_digest("thread", tenant, thread_id)


def checkpoint_key(place: Place) -> str:
    namespace = _cached_digest("namespace", place.checkpoint_ns)
    return f"{thread_key(place.tenant, place.thread_id)}:{namespace}:{place.checkpoint_id}"


def write_key(place: Place, task_id: str, idx: int) -> str:
    return f"{checkpoint_key(place)}:{digest('task', task_id)}:{idx}"


def part_key(place: Place, value_id: str, n: int) -> str:
    return f"{thread_key(place.tenant, place.thread_id)}:{value_id}:{n}"


def random_id() -> str:
    """128 random bits, 22 characters of URL-safe base64."""
    return secrets.token_urlsafe(16)


def version_text(version: Version) -> str:
    """The version as text that keeps its kind: 1, 1.0 and "1" differ."""
    if version is None:
        return "-"
    if isinstance(version, str):
        return f"s:{version}"
    if isinstance(version, int):
        return f"i:{int(version)}"
    return f"f:{float(version).hex()}"


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a str that BSON keeps as one.

    A lone surrogate has no UTF-8 form, and `Code` is a str to Python and something to execute to a server.
    """
    if not isinstance(value, str) or isinstance(value, Code):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def now() -> datetime:
    """The clock as BSON keeps it: UTC without a zone, whole milliseconds."""
    return bson_time(datetime.now(UTC))


def bson_time(time: datetime) -> datetime:
    """A time as it reads back from BSON; one without a zone is taken as UTC."""
    if time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def common_fields(place: Place, active_at: datetime | None) -> Document:
    return {
        "format": FORMAT,
        "tenant": place.tenant,
        "thread_id": place.thread_id,
        "checkpoint_ns": place.checkpoint_ns,
        "active_at": active_at,
    }


def place_of(document: Document) -> Place:
    """The place that a checkpoint or write document names."""
    return Place(document["tenant"], document["thread_id"], document["checkpoint_ns"], document["checkpoint_id"])


def require_format(document: Document) -> None:
    """Raise `FormatVersionError` for a document that a newer release wrote."""
    if document["format"] != FORMAT:
        raise FormatVersionError(
            f"A document has format {document['format']}; this release of docstore_saver reads format {FORMAT}. "
            "Upgrade docstore_saver."
        )


def references(document: Document) -> list[Reference]:
    return [Reference.from_document(entry) for entry in document["refs"]]


def parents_list(parents: Any) -> list[Document]:
    """Metadata's `parents` as a list, since namespaces may hold dots and dollars."""
    if not isinstance(parents, dict):
        return []
    pairs = [(ns, parent) for ns, parent in parents.items() if isinstance(ns, str) and isinstance(parent, str)]
    return [{"checkpoint_ns": ns, "checkpoint_id": parent} for ns, parent in sorted(pairs)]


# What a seal binds (docs/format.md, section 10). Made from the document itself, when writing and when reading.


def checkpoint_context(document: Document, field: str) -> list[Any]:
    return [
        *_common_context(document, field),
        document["checkpoint_id"],
        document["parent_checkpoint_id"],
        document["put_id"],
        _rows(document["parents"], ("checkpoint_ns", "checkpoint_id")),
        document["run_id"],
        document["stored"],
        _rows(document["refs"], Reference.__slots__),
        _rows(document["delta"], ("channel", "steps")),
        document["facets_by"],
        document["facets"],
    ]


def write_context(document: Document) -> list[Any]:
    return [
        *_common_context(document, "write"),
        document["checkpoint_id"],
        document["task_id"],
        document["task_path"],
        document["idx"],
        document["of"],
        document["channel"],
        document["run_id"],
        _rows([document["ref"]] if document["ref"] else [], Reference.__slots__),
    ]


def part_context(document: Document) -> list[Any]:
    return [
        *_common_context(document, "value"),
        document["field"],
        document["channel"],
        document["version"],
        document["value_id"],
        document["n"],
        document["parts"],
    ]


def _common_context(document: Document, field: str) -> list[Any]:
    return [document["format"], document["tenant"], document["thread_id"], document["checkpoint_ns"], field]


def _rows(entries: Sequence[Document], names: Sequence[str]) -> list[list[Any]]:
    return [[entry[name] for name in names] for entry in entries]
