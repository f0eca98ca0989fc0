"""Digests of metadata that let a store search what it cannot read (docs/format.md, section 6)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, TypeAlias

import ormsgpack

Digest: TypeAlias = Callable[[bytes], bytes]
"""SHA-256, or an HMAC under a tenant's index key."""

ANY = "*"
"""Stands in a document that carries no digests: it must be judged after decoding."""

MOST = 256
_KEY_CHARACTERS = 8
_VALUE_CHARACTERS = 16


def plain_digest(data: bytes) -> bytes:
    return sha256(data).digest()


def facets(metadata: Mapping[Any, Any], digest: Digest | None) -> list[str]:
    """The facets of all top-level items, sorted; ``["*"]`` where there may be none."""
    if digest is None or len(metadata) > MOST:
        return [ANY]
    return sorted(_facet(key, value, digest) for key, value in metadata.items() if type(key) is str)


def wanted(filter: Mapping[Any, Any], digest: Digest) -> list[tuple[str, list[str]]]:
    """For each filter item that digests can answer: its key digest, and the facets one of which a row must carry.

    Numbers agree by value, as Python's ``==`` has it; what no digest answers is left to the decoded metadata.
    """
    return [
        (key_digest(key, digest), [_facet(key, value, digest), _facet(key, _OTHER, digest), ANY])
        for key, value in filter.items()
        if type(key) is str and type(value) in (str, int, float, bool)
    ]


def matches(filter: Mapping[Any, Any] | None, metadata: Mapping[Any, Any]) -> bool:
    """InMemorySaver's meaning: equality of every item, where a missing key equals None."""
    return not filter or all(value == metadata.get(key) for key, value in filter.items())


def key_digest(key: str, digest: Digest) -> str:
    return _text(digest(_packed("key", key)), _KEY_CHARACTERS)


def key_of(facet: str) -> str:
    """The key digest that a facet starts with."""
    return facet[:_KEY_CHARACTERS]


_OTHER = object()


def _facet(key: str, value: Any, digest: Digest) -> str:
    kind, text = _kind(value)
    return key_digest(key, digest) + _text(digest(_packed("item", key, kind, text)), _VALUE_CHARACTERS)


def _kind(value: Any) -> tuple[str, str]:
    if type(value) is str:
        return "text", value
    if type(value) in (int, bool):
        return "number", str(int(value))
    if type(value) is float:
        return "number", str(int(value)) if value.is_integer() else value.hex()
    return "other", ""


def _packed(*parts: str) -> bytes:
    # A lone surrogate has no UTF-8; backslashes keep two such strings apart.
    return ormsgpack.packb([part.encode("utf-8", "surrogatepass") for part in parts])


def _text(data: bytes, characters: int) -> str:
    return urlsafe_b64encode(data)[:characters].decode()
