"""Digests of metadata that let a store search what it cannot read (docs/format.md, section 6)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import ormsgpack

MOST = 256
_KEY_CHARACTERS = 8
_VALUE_CHARACTERS = 16
_OTHER = object()


@dataclass(frozen=True, slots=True)
class Digest:
    """How facets are made: its name stands in `facets_by`."""

    name: str
    function: Callable[[bytes], bytes]


NONE = "none"
PLAIN = Digest("plain", lambda data: sha256(data).digest())


def facets(metadata: Mapping[Any, Any], digest: Digest | None) -> tuple[str, list[str]]:
    """`facets_by` and the sorted facets of all top-level items; none where there may be none."""
    if digest is None or len(metadata) > MOST:
        return NONE, []
    return digest.name, sorted(_facet(key, value, digest) for key, value in metadata.items() if type(key) is str)


def indexed(metadata: Mapping[Any, Any], keys: frozenset[str], digest: Digest) -> dict[str, str]:
    """The facets of the indexed keys, by key digest; "" for a key that the metadata lacks."""
    return {key_digest(key): _facet(key, metadata[key], digest) if key in metadata else "" for key in sorted(keys)}


def wanted(filter: Mapping[Any, Any], digests: list[Digest]) -> dict[str, list[str]]:
    """For each filter item that digests can answer: the facets one of which a row must carry.

    Numbers agree by value, as Python's ``==`` has it; what no digest answers is left to the decoded metadata.
    """
    return {
        key: [_facet(key, item, digest) for digest in digests for item in (value, _OTHER)]
        for key, value in filter.items()
        if type(key) is str and type(value) in (str, int, float, bool)
    }


def matches(filter: Mapping[Any, Any] | None, metadata: Mapping[Any, Any]) -> bool:
    """InMemorySaver's meaning: equality of every item, where a missing key equals None."""
    return not filter or all(value == metadata.get(key) for key, value in filter.items())


def key_digest(key: str) -> str:
    """Names an indexed key. Unkeyed: it is a name in the configuration, and of an index."""
    return _text(PLAIN.function(_packed("key", key)), _KEY_CHARACTERS)


def _facet(key: str, value: Any, digest: Digest) -> str:
    kind, text = _kind(value)
    return _text(digest.function(_packed("item", key, kind, text)), _VALUE_CHARACTERS)


def _kind(value: Any) -> tuple[str, str]:
    if type(value) is str:
        return "text", value
    if type(value) in (int, bool):
        return "number", str(int(value))
    if type(value) is float:
        return "number", str(int(value)) if value.is_integer() else value.hex()
    return "other", ""


def _packed(*parts: str) -> bytes:
    # A lone surrogate has no UTF-8; this keeps two such strings apart.
    return ormsgpack.packb([part.encode("utf-8", "surrogatepass") for part in parts])


def _text(data: bytes, characters: int) -> str:
    return urlsafe_b64encode(data)[:characters].decode()
