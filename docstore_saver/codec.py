"""Values to payloads and back: serialise, then seal.

A codec is made anew from the saver's `serde` for each operation: LangGraph clones savers and exchanges their serializer
(`with_allowlist`), so nothing may be derived from it earlier. Of LangGraph's `EncryptedSerializer` the inner serializer
and the cipher are used apart: values are serialised by the one, and what is stored is sealed by the other, once for
each payload. A cipher that has `seal` and `open` is given the context that its payload is bound to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from docstore_saver.calls import LARGE_BYTES
from docstore_saver.documents import Payload
from docstore_saver.errors import DecodingError, DecryptionError, DocStoreError, FormatVersionError
from docstore_saver.facets import PLAIN, Digest

Typed: TypeAlias = tuple[str, bytes]
"""A serializer's type and its bytes."""

EMPTY: Typed = ("null", b"")
CHANNELS = "channels"

# A container with more items is worth a thread of its own, whatever they are.
_MOST_ITEMS = 256


@runtime_checkable
class ContextCipher(Protocol):
    """A cipher that binds what it seals to its place. Its name stands in the payload."""

    name: str

    def seal(self, data: bytes, context: bytes, type: str) -> bytes: ...

    def open(self, data: bytes, context: bytes, type: str) -> bytes: ...


class Codec:
    """Serialises and seals for one operation."""

    def __init__(self, serde: SerializerProtocol) -> None:
        # Exactly LangGraph's class: a subclass may do anything in its dumps_typed, and is used as it is.
        encrypted = serde if type(serde) is EncryptedSerializer else None
        self._serde = encrypted.serde if encrypted else serde
        self._cipher = encrypted.cipher if encrypted else None
        # isinstance on a protocol is slow, and most savers have no cipher.
        binds = self._cipher is not None and isinstance(self._cipher, ContextCipher)
        self._binding = cast("ContextCipher", self._cipher) if binds else None
        # Unkeyed digests of sealed metadata could be guessed, so only what lies in clear has them.
        self.digest: Digest | None = PLAIN if isinstance(serde, JsonPlusSerializer) else None

    @property
    def seals(self) -> bool:
        return self._cipher is not None

    @property
    def binds(self) -> bool:
        """Whether a seal also covers the plain fields of its document."""
        return self._binding is not None

    def dumps(self, value: Any) -> Typed:
        kind, data = self._serde.dumps_typed(value)
        # A bytearray comes back as itself; a document must not share it with the caller.
        return kind, data if type(data) is bytes else bytes(data)

    def loads(self, typed: Typed) -> Any:
        try:
            return self._serde.loads_typed(typed)
        except DocStoreError:
            raise
        except Exception as error:
            raise DecodingError(
                f"A stored value of type {typed[0]!r} cannot be decoded by {type(self._serde).__name__}: "
                "it was written with another serializer, or the saver lacks its key or its allowlist."
            ) from error

    def seal(self, typed: Typed, context: list[Any]) -> Payload:
        kind, data = typed
        if self._cipher is None:
            return {"type": kind, "data": data}
        if self._binding is not None:
            name, sealed = self._binding.name, self._binding.seal(data, _bytes(context, kind), kind)
        else:
            name, sealed = self._cipher.encrypt(data)
        return {"type": kind, "cipher": name, "data": sealed}

    def open(self, payload: Payload, context: list[Any]) -> Typed:
        kind, data = payload["type"], payload["data"]
        if "compression" in payload:
            raise FormatVersionError(
                f"A stored value is compressed with {payload['compression']!r}, which this release of docstore_saver "
                "cannot read. Upgrade docstore_saver."
            )
        if "cipher" not in payload:
            return kind, data
        name = payload["cipher"]
        if self._cipher is None:
            raise DecryptionError(
                f"A stored value is sealed (cipher {name!r}) and this saver has no cipher. "
                "Give it the serde that the store was written with."
            )
        try:
            if self._binding is not None and name == self._binding.name:
                return kind, self._binding.open(data, _bytes(context, kind), kind)
            return kind, cast("Any", self._cipher).decrypt(name, data)
        except DocStoreError:
            raise
        except Exception as error:
            raise DecryptionError from error


def pack_channels(values: Mapping[str, Typed]) -> Typed:
    """All inline values of a checkpoint as one."""
    return CHANNELS, ormsgpack.packb({channel: list(typed) for channel, typed in values.items()})


def unpack_channels(typed: Typed) -> dict[str, Typed]:
    if typed[0] != CHANNELS:
        raise DecodingError(f"The inline values of a checkpoint have type {typed[0]!r} instead of {CHANNELS!r}.")
    try:
        return {channel: (kind, data) for channel, (kind, data) in ormsgpack.unpackb(typed[1]).items()}
    except (ValueError, TypeError) as error:
        raise DecodingError("The inline values of a checkpoint are damaged.") from error


def looks_large(value: Any) -> bool:
    """Whether serialising this value may take long enough to be noticed on an event loop; a cheap, shallow guess."""
    waiting, seen, size = [value], 0, 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if isinstance(item, str | bytes | bytearray):
            size += len(item)
        elif isinstance(item, dict):
            waiting.extend(list(item.values())[:_MOST_ITEMS])
        elif isinstance(item, list | tuple | set | frozenset):
            waiting.extend(list(item)[:_MOST_ITEMS])
        elif hasattr(item, "nbytes"):
            size += int(item.nbytes)
        elif hasattr(item, "__dict__"):
            waiting.extend(vars(item).values())
        if size > LARGE_BYTES or seen + len(waiting) > _MOST_ITEMS:
            return True
    return False


def _bytes(context: list[Any], kind: str) -> bytes:
    """The context as bytes: msgpack prefixes everything with its length, so two contexts never meet."""
    no_compression = None
    return ormsgpack.packb([*context, kind, no_compression, no_compression])
