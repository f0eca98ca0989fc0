"""What a store can do, as a value. Plans read it; no other code asks which store it talks to."""

from __future__ import annotations

from dataclasses import dataclass

from docstore_saver.errors import ConfigurationError, shown

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Dialect:
    """Capabilities of one kind of store."""

    name: str
    graph_lookup: bool = True
    lookup_pipeline: bool = True
    partial_index: bool = True
    modify_index: bool = True
    merge: bool = True
    persistent: bool = True
    thread_safe: bool = True
    part_bytes: int = 3 * MiB // 2
    """Of a stored value; its document must fit the smallest limit of any store, 2 MB."""
    identifier_bytes: int = 16 * 1024


MONGODB = Dialect("mongodb")
EMBEDDED = Dialect(
    "embedded", lookup_pipeline=False, modify_index=False, merge=False, persistent=False, thread_safe=False
)

_BY_NAME = {dialect.name: dialect for dialect in (MONGODB, EMBEDDED)}

# Error codes, by what a plan does about them. Stages and operators that a store does not know:
UNSUPPORTED_CODES = frozenset({40324, 304, 115, 238, 59})
# Results or memory over a limit of the server (DocumentTooLarge, BSONObjectTooLarge, $graphLookup's memory, its
# array, sorts and groups), and a stage's own time limit: another way to ask may succeed.
TOO_MUCH_CODES = frozenset({10334, 17419, 40099, 16819, 146, 292, 50})
TOO_LARGE_CODES = frozenset({10334, 17280, 17419, 17420})
UNAUTHORIZED_CODES = frozenset({13, 8000})
THROTTLED_CODES = frozenset({16500})
INDEX_NOT_FOUND_CODES = frozenset({26, 27})
CANNOT_CREATE_CODES = frozenset({67})
INDEX_CONFLICT_CODES = frozenset({85, 86})


def dialect_named(name: object) -> Dialect:
    dialect = _BY_NAME.get(name) if isinstance(name, str) else None
    if dialect is None:
        known = ", ".join(repr(known) for known in sorted(_BY_NAME))
        raise ConfigurationError(f"dialect={shown(name)} is not known; this release knows {known}.")
    return dialect
