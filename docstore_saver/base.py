"""What both faces share: options, tenants, clones, and the plan for each method."""

from __future__ import annotations

import contextlib
import copy
import inspect
import secrets
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.serde.base import SerializerProtocol

from docstore_saver.arguments import ArgumentReader, configurable
from docstore_saver.calls import COLLECTIONS, Plan
from docstore_saver.clients import MEMORY_URI, ClientSource, EmbeddedClient, Face, GivenClient, MadeClient
from docstore_saver.codec import Codec
from docstore_saver.documents import Place
from docstore_saver.errors import ConfigurationError, InvalidArgumentError, TenantRequiredError, shown
from docstore_saver.options import (
    DEFAULT_INLINE_LIMIT,
    DEFAULT_PREFIX,
    Options,
    TenantFrom,
    checked_options,
    is_tenant,
    refuse_unknown,
)
from docstore_saver.plans import admin, delta, read, retention, ttl, write
from docstore_saver.state import Scope, SharedState

V = TypeVar("V", int, float, str)


class SaverBase(BaseCheckpointSaver[Any]):
    """Everything of a saver that needs no I/O. Use `DocStoreSaver` or `AsyncDocStoreSaver`."""

    _face: Face

    def __init__(
        self,
        client: Any,
        database: str | None = None,
        *,
        db_name: str | None = None,
        collection_prefix: str = DEFAULT_PREFIX,
        serde: SerializerProtocol | None = None,
        ttl: timedelta | float | None = None,
        tenant: str | None = None,
        tenant_from: TenantFrom | None = None,
        inline_limit: int = DEFAULT_INLINE_LIMIT,
        delta_strategy: str = "auto",
        dialect: str | None = None,
        auto_setup: bool = True,
        indexed_metadata: Collection[str] = (),
        timeout: timedelta | float | None = None,
        **unknown: Any,
    ) -> None:
        """Make a saver over a client of yours. No I/O happens here.

        Args:
            client: a MongoClient or mongomock client for `DocStoreSaver`; an AsyncMongoClient, Motor or mongomock-motor
                client for `AsyncDocStoreSaver`. It stays yours: `close()` leaves it open.
            database: name of the database. Default: the connection string's, else "docstore".
            db_name: the same, as MongoDBSaver calls it.
            collection_prefix: what the names of the three collections start with.
            serde: LangGraph's serializer; `EncryptedSerializer` encrypts all that is stored.
            ttl: a thread expires when nothing was put for this long; a timedelta or seconds. Default: the store's.
            tenant: keeps this saver's threads apart from those of every other tenant.
            tenant_from: where to find the tenant of a call: a key of ``config["configurable"]``, or a callable.
            inline_limit: bytes from which on a value is stored by itself, once for all checkpoints that share it.
            delta_strategy: "auto", "graph_lookup" or "scan".
            dialect: the kind of store, where it cannot be told from the client.
            auto_setup: make the indexes before the first operation.
            indexed_metadata: metadata keys whose filters get an index.
            timeout: bound on every operation; a timedelta or seconds. Default: the client's.
            **unknown: refused, with a hint.

        Raises:
            ConfigurationError: an option or the client cannot work.
            WrongFaceError: the client belongs to the other saver class.
        """
        refuse_unknown(unknown)
        if serde is not None and not (hasattr(serde, "dumps_typed") or hasattr(serde, "dumps")):
            raise ConfigurationError(f"serde={shown(serde)}: expected a serializer of LangGraph's protocol.")
        super().__init__(serde=serde)
        self._options: Options = checked_options(
            database=database,
            db_name=db_name,
            collection_prefix=collection_prefix,
            ttl=ttl,
            tenant=tenant,
            tenant_from=tenant_from,
            inline_limit=inline_limit,
            delta_strategy=delta_strategy,
            dialect=dialect,
            auto_setup=auto_setup,
            indexed_metadata=indexed_metadata,
            timeout=timeout,
        )
        self._tenant = self._options.tenant
        self._source: ClientSource = (
            client if isinstance(client, GivenClient | MadeClient) else GivenClient(client, self._face)
        )
        self._state = SharedState(self._options.dialect or self._source.dialect, self._options.ttl)
        self._names = {name: self._options.collection_prefix + name for name in COLLECTIONS}

    @classmethod
    def from_conn_string(cls, conn_string: str, database: str | None = None, **options: Any) -> Self:
        """Make a saver with a client of its own, usable as it is and as a context manager.

        Args:
            conn_string: ``mongodb://...``, ``mongodb+srv://...``, or ``memory://`` for the embedded store.
            database: as in the constructor.
            **options: the constructor's options; all others go to the driver untouched.
        """
        own = {name: options.pop(name) for name in list(options) if name in _OPTION_NAMES}
        if conn_string == MEMORY_URI:
            return cls(EmbeddedClient(cls._face), database, **own, **options)
        refuse_unknown({name: value for name, value in options.items() if name.endswith("_collection_name")})
        return cls(MadeClient(conn_string, options), database, **own)

    @classmethod
    def in_memory(cls, **options: Any) -> Self:
        """Make a saver on the embedded store: no server, lost at exit, slow above about a thousand documents."""
        return cls.from_conn_string(MEMORY_URI, **options)

    def for_tenant(self, tenant: str) -> Self:
        """A clone that sees this tenant only; it shares the client and everything else. A config cannot override it."""
        if not is_tenant(tenant):
            raise InvalidArgumentError(f"tenant={shown(tenant)}: expected a string that is not empty or very long.")
        if self._tenant is not None and self._tenant != tenant:
            raise InvalidArgumentError("This saver belongs to another tenant.")
        clone = copy.copy(self)
        clone._tenant = tenant  # noqa: SLF001  # our own clone
        return clone

    def get_next_version(self, current: V | None, channel: None) -> V:  # noqa: ARG002  # LangGraph's signature
        """The next version of a channel, of the kind that the thread has: a str (the default), int or float."""
        if current is None or isinstance(current, str):
            return f"{_number(current) + 1:032}.{secrets.token_hex(8)}"  # type: ignore[return-value]  # V is str here
        return current + 1

    # The plans. Arguments are checked here, so a refusal costs no command.

    def _plan_put(
        self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> tuple[RunnableConfig, Plan[None]]:
        tenant = self._tenant_of(config)
        new = self._reader(tenant).new_checkpoint(config, checkpoint, metadata, new_versions)
        return self._config(new.place), write.put(self._scope(), new)

    def _plan_put_writes(self, config: Any, writes: Any, task_id: Any, task_path: Any) -> Plan[None]:
        reader = self._reader(self._tenant_of(config))
        place = reader.place(config, checkpoint_id=True)
        task = reader.task(config, task_id, task_path)
        return write.put_writes(self._scope(), place, reader.writes(writes), task)

    def _plan_get_tuple(self, config: Any) -> Plan[CheckpointTuple | None]:
        place = self._reader(self._tenant_of(config)).place(config)
        return read.get_tuple(self._scope(), place, self._config)

    def _listing(self, config: Any, filter: Any, before: Any, limit: Any) -> read.Listing:
        query = self._reader(self._tenant_of(config)).list_query(config, filter, before, limit)
        return read.Listing(self._scope(), query, self._config)

    def _plan_history(self, config: Any, channels: Any) -> Plan[Mapping[str, DeltaChannelHistory]]:
        reader = self._reader(self._tenant_of(config))
        return delta.history(self._scope(), reader.place(config), reader.channels(channels))

    def _plan_delete_thread(self, thread_id: Any) -> Plan[None]:
        tenant = self._tenant_of(None)
        return retention.delete_thread(self._scope(), tenant, self._reader(tenant).thread_id(thread_id))

    def _plan_setup(self) -> Plan[None]:
        return admin.setup(self._scope())

    def _plan_first_use(self) -> Plan[Any]:
        return self._plan_setup() if self._options.auto_setup else ttl.adopt(self._scope())

    def _scope(self) -> Scope:
        return Scope(
            state=self._state,
            codec=Codec(self.serde),
            names=self._names,
            inline_limit=self._options.inline_limit,
            delta_strategy=self._options.delta_strategy,
            indexed=self._options.indexed,
        )

    def _reader(self, tenant: str) -> ArgumentReader:
        return ArgumentReader(tenant, self._state.dialect.identifier_bytes)

    def _tenant_of(self, config: Any) -> str:
        """The tenant of one call: the saver's own, else what `tenant_from` says now; never an earlier call's."""
        if self._tenant is not None:
            return self._tenant
        source = self._options.tenant_from
        if source is None:
            return ""
        tenant: Any = None
        if callable(source):
            with contextlib.suppress(LookupError):  # a context variable that is not set
                tenant = source()
        elif config is not None:
            tenant = configurable(config).get(source)
        if not is_tenant(tenant):
            raise TenantRequiredError
        return str.__str__(tenant)

    def _config(self, place: Place) -> RunnableConfig:
        """The config that leads back to a checkpoint."""
        values = {
            "thread_id": place.thread_id,
            "checkpoint_ns": place.checkpoint_ns,
            "checkpoint_id": place.checkpoint_id,
        }
        if isinstance(self._options.tenant_from, str):
            values[self._options.tenant_from] = place.tenant
        return {"configurable": values}


def _number(version: str | None) -> int:
    if version is None:
        return 0
    try:
        return int(version.partition(".")[0])
    except ValueError:
        raise InvalidArgumentError(f"The channel version {version[:50]!r} does not start with a number.") from None


_OPTION_NAMES = frozenset(
    name
    for name, parameter in inspect.signature(SaverBase.__init__).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)
