"""The options of every constructor, checked once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from docstore_saver.dialects import Dialect, MiB, dialect_named
from docstore_saver.documents import is_text
from docstore_saver.errors import ConfigurationError, shown
from docstore_saver.state import Ttl

TenantFrom: TypeAlias = str | Callable[[], str]

DEFAULT_DATABASE = "docstore"
DEFAULT_PREFIX = "docstore_"
DEFAULT_INLINE_LIMIT = 16 * 1024
_MOST_DATABASE_BYTES = 63
_MOST_PREFIX = 60
_MOST_TENANT_BYTES = 1024
_MOST_TTL_SECONDS = 10 * 365 * 24 * 3600
_CONFIG_KEYS = {"thread_id", "checkpoint_ns", "checkpoint_id"}
_STRATEGIES = ("auto", "graph_lookup", "scan")
_MONGODB_SAVER_NAMES = ("checkpoint_collection_name", "writes_collection_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a saver was asked for. `None` means: find out."""

    database: str | None = None
    collection_prefix: str = DEFAULT_PREFIX
    ttl: Ttl | None = None
    tenant: str | None = None
    tenant_from: TenantFrom | None = None
    inline_limit: int = DEFAULT_INLINE_LIMIT
    delta_strategy: str = "auto"
    dialect: Dialect | None = None
    auto_setup: bool = True
    indexed: frozenset[str] = frozenset()
    timeout: float | None = None


def checked_options(
    *,
    database: str | None,
    db_name: str | None,
    collection_prefix: str,
    ttl: timedelta | float | None,
    tenant: str | None,
    tenant_from: TenantFrom | None,
    inline_limit: int,
    delta_strategy: str,
    dialect: str | None,
    auto_setup: bool,
    indexed_metadata: Collection[str],
    timeout: timedelta | float | None,
) -> Options:
    """Raise `ConfigurationError` for what cannot work, before anything else happens."""
    if database is not None and db_name is not None and database != db_name:
        raise ConfigurationError("database= and db_name= are two names of one option; give one of them.")
    if delta_strategy not in _STRATEGIES:
        raise ConfigurationError(f"delta_strategy={shown(delta_strategy)}: expected one of {', '.join(_STRATEGIES)}.")
    if not isinstance(inline_limit, int) or isinstance(inline_limit, bool) or not 0 <= inline_limit <= MiB:
        raise ConfigurationError(f"inline_limit={shown(inline_limit)}: expected bytes, an int from 0 to {MiB}.")
    if tenant_from is not None and not (callable(tenant_from) or _is_name(tenant_from)):
        raise ConfigurationError("tenant_from= takes a key of config['configurable'] or a callable without arguments.")
    if isinstance(tenant_from, str) and tenant_from in _CONFIG_KEYS:
        raise ConfigurationError(f"tenant_from={shown(tenant_from)} is a key of LangGraph's own; take one of yours.")
    if not isinstance(auto_setup, bool):
        raise ConfigurationError(f"auto_setup={shown(auto_setup)}: expected True or False.")
    return Options(
        database=_database(database if database is not None else db_name),
        collection_prefix=_prefix(collection_prefix),
        ttl=_ttl(ttl),
        tenant=_tenant(tenant),
        tenant_from=tenant_from,
        inline_limit=inline_limit,
        delta_strategy=delta_strategy,
        dialect=None if dialect is None else dialect_named(dialect),
        auto_setup=auto_setup,
        indexed=frozenset(_keys(indexed_metadata)),
        timeout=_seconds("timeout", timeout),
    )


def is_tenant(value: Any) -> bool:
    """Whether a value can name a tenant: it is part of every key."""
    return _is_name(value) and len(value.encode()) <= _MOST_TENANT_BYTES


def refuse_unknown(options: dict[str, Any]) -> None:
    """Constructors take no other options; say what to write instead."""
    for name in options:
        if name in _MONGODB_SAVER_NAMES:
            raise ConfigurationError(
                f"{name}= is an option of MongoDBSaver. Here one collection_prefix= names all three collections."
            )
        raise ConfigurationError(
            f"{name}= is not an option of this saver. Options of the driver belong to the client, or to "
            "from_conn_string()."
        )


def _database(name: Any) -> str | None:
    if name is None:
        return None
    if not _is_name(name) or len(name.encode()) > _MOST_DATABASE_BYTES or set(name) & set('/\\. "$\0'):
        raise ConfigurationError(f"database={shown(name)} is not the name of a MongoDB database.")
    return str(name)


def _prefix(prefix: Any) -> str:
    if (
        not is_text(prefix)
        or len(prefix) > _MOST_PREFIX
        or set(prefix) & set("$\0")
        or "://" in prefix
        or prefix.startswith(("system.", "."))
    ):
        raise ConfigurationError(f"collection_prefix={shown(prefix)} cannot start the name of a collection.")
    return prefix


def _tenant(tenant: Any) -> str | None:
    if tenant is None:
        return None
    if not is_tenant(tenant):
        raise ConfigurationError(f"tenant={shown(tenant)}: expected a string that is not empty or very long.")
    return str.__str__(tenant)


def _ttl(ttl: Any) -> Ttl | None:
    seconds = _seconds("ttl", ttl)
    if seconds is not None and seconds > _MOST_TTL_SECONDS:
        raise ConfigurationError(f"ttl={shown(ttl)}: more than ten years; leave it out to keep threads for ever.")
    return None if seconds is None else Ttl(max(1, int(-(-seconds // 1))))


def _seconds(name: str, value: Any) -> float | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 2**31:
        raise ConfigurationError(f"{name}={shown(value)}: expected a timedelta or a number of seconds greater than 0.")
    return float(seconds)


def _keys(names: Any) -> list[str]:
    if not isinstance(names, list | tuple | set | frozenset) or not all(_is_name(name) for name in names):
        raise ConfigurationError(f"indexed_metadata={shown(names)}: expected a list of metadata keys.")
    return list(names)


def _is_name(value: Any) -> bool:
    return is_text(value) and value != ""
