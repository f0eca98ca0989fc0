"""Clients: which kinds there are, where they come from, and the collections behind them."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import unquote

import pymongo
from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, MongoClient, ReadPreference, WriteConcern
from pymongo.errors import PyMongoError

from docstore_saver.calls import COLLECTIONS
from docstore_saver.dialects import EMBEDDED, MONGODB, Dialect
from docstore_saver.driver_errors import translated
from docstore_saver.errors import ConfigurationError, WrongFaceError, WrongLoopError
from docstore_saver.options import DEFAULT_DATABASE
from docstore_saver.runners import Collections

Face = Literal["sync", "async"]
MEMORY_URI = "memory://"
_TELLING = 4

_UNUSABLE = (
    "The connection string or an option of the client cannot be used: {}. Expected "
    "mongodb://user:password@host:port/database?options, with special characters in user and password escaped as %XX; "
    'or "memory://" for the embedded store.'
)

# Motor answers any attribute name, so clients are told apart by type. Optional packages are only looked at when the
# program has imported them, which whoever holds such a client has.
_OPTIONAL: tuple[tuple[str, str, Face, Dialect], ...] = (
    ("mongomock_motor", "AsyncMongoMockClient", "async", EMBEDDED),
    ("mongomock", "MongoClient", "sync", EMBEDDED),
    ("motor.motor_asyncio", "AsyncIOMotorClient", "async", MONGODB),
)


def recognise(client: Any) -> tuple[Face, Dialect]:
    """The face that a client belongs to, and the dialect that its type stands for."""
    for module, name, face, dialect in _OPTIONAL:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(client, kind):
            return face, dialect
    if isinstance(client, MongoClient):
        return "sync", MONGODB
    if isinstance(client, AsyncMongoClient):
        return "async", MONGODB
    raise ConfigurationError(
        f"A {type(client).__module__}.{type(client).__name__} is no client that this saver knows. It takes a "
        "MongoClient, AsyncMongoClient, Motor's AsyncIOMotorClient, or a client of mongomock or mongomock-motor; for "
        "a connection string use from_conn_string()."
    )


class GivenClient:
    """A client of the user's: never closed, and bound to the loop of its first use."""

    def __init__(self, client: Any, face: Face) -> None:
        found, self.dialect = recognise(client)
        if found != face:
            other = "AsyncDocStoreSaver" if found == "async" else "DocStoreSaver"
            raise WrongFaceError(f"A {type(client).__name__} is {found}: use {other}.")
        concern = getattr(client, "write_concern", None)
        if concern is not None and concern.acknowledged is False:
            raise ConfigurationError(
                "The client has w=0: writes would be lost without an error. Use a client with acknowledged writes."
            )
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self.hosts = "the client's hosts"

    def get(self, loop: asyncio.AbstractEventLoop | None = None) -> Any:
        # mongomock's async client has no loop of its own.
        if loop is not None and self.dialect.persistent:
            self._loop = self._loop or loop
            if self._loop is not loop:
                raise WrongLoopError(
                    "This saver's client belongs to a different event loop, that of its first call. Make one client "
                    "and saver for each loop, or use from_conn_string(), whose savers bring a client for each loop."
                )
        return self._client

    def close(self) -> None:
        """Leave the client alone: it is the user's."""

    async def aclose(self) -> None:
        """Leave the client alone: it is the user's."""


class MadeClient:
    """Clients made from a connection string: one, or for the async face one for each event loop."""

    dialect = MONGODB

    def __init__(self, uri: str, options: Mapping[str, Any]) -> None:
        self.hosts = _require_usable(uri, options)
        self._uri, self._options = uri, dict(options)
        self._sync: Any = None
        self._by_loop: dict[asyncio.AbstractEventLoop, Any] = {}
        self._closed = False

    def get(self, loop: asyncio.AbstractEventLoop | None = None) -> Any:
        """The client; made at its first use, as looking up an SRV record would block a constructor."""
        if self._closed:
            raise ConfigurationError("The saver is closed. Make a new one.")
        if loop is None:
            self._sync = self._sync or self._make_sync()
            return self._sync
        if loop not in self._by_loop:
            self._by_loop = {known: client for known, client in self._by_loop.items() if not known.is_closed()}
            self._by_loop[loop] = AsyncMongoClient(self._uri, **self._options)
        return self._by_loop[loop]

    def _make_sync(self) -> Any:
        try:
            return MongoClient(self._uri, **self._options)
        except Exception as error:
            # The SRV record is looked up here.
            raise translated(error, self.hosts) from error

    def close(self) -> None:
        self._closed = True
        if self._sync is not None:
            self._sync.close()

    async def aclose(self) -> None:
        self._closed = True
        client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


class EmbeddedClient(GivenClient):
    """mongomock: everything in this process's memory."""

    def __init__(self, face: Face) -> None:
        module, name = ("mongomock", "MongoClient") if face == "sync" else ("mongomock_motor", "AsyncMongoMockClient")
        try:
            make: Callable[[], Any] = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise ConfigurationError(
                'The embedded store needs mongomock: pip install "docstore_saver[embedded]"'
            ) from error
        super().__init__(make(), face)
        self.hosts = "the embedded store"


ClientSource = GivenClient | MadeClient


def collections_of(client: Any, database: str | None, names: Mapping[Any, str]) -> Collections:
    """The three collections with options of their own, so that none of the client's leak in."""
    # By name: mongomock-motor answers its default database as a sync one.
    db = client[database or client.get_default_database(DEFAULT_DATABASE).name]
    return {
        name: db.get_collection(
            names[name],
            codec_options=CodecOptions(),
            read_preference=ReadPreference.PRIMARY,
            write_concern=WriteConcern(w="majority"),
        )
        for name in COLLECTIONS
    }


def _require_usable(uri: Any, options: Mapping[str, Any]) -> str:
    """Check a connection string and its options without I/O; answer its hosts, without credentials."""
    if not isinstance(uri, str):
        raise ConfigurationError(f"A connection string is a str, not {type(uri).__name__}.")
    scheme, _, rest = uri.partition("://")
    if scheme not in ("mongodb", "mongodb+srv"):
        raise ConfigurationError(_UNUSABLE.format("it does not start with mongodb:// or mongodb+srv://"))
    # The last @ before the options ends the credentials, also where a slash stands in them unescaped.
    credentials, _, address = rest.partition("?")[0].rpartition("@")
    hosts = address.partition("/")[0]
    if set(credentials) & set("/#"):
        raise ConfigurationError(_UNUSABLE.format("special characters in its credentials are not escaped"))
    checked = uri
    if scheme == "mongodb+srv":
        if not re.fullmatch(r"[^,:\s]+", hosts) or credentials.count("@") or credentials.count(":") > 1:
            raise ConfigurationError(_UNUSABLE.format("mongodb+srv:// takes one host name without a port"))
        query = [pair for pair in uri.partition("?")[2].split("&") if not pair.lower().startswith("srv")]
        checked = "mongodb://localhost/?" + "&".join(query)
    try:
        # SRV and TXT records are looked up by the driver at the first use.
        with pymongo.MongoClient(checked, **{**options, "connect": False}) as client:
            concern = client.write_concern
    except (PyMongoError, ValueError, TypeError, OSError) as error:
        said = f"{error} (options: {', '.join(options) or 'none'})"
        raise ConfigurationError(_UNUSABLE.format(_redacted(said, rest.rpartition("@")[0]))) from None
    if concern.acknowledged is False:
        raise ConfigurationError("w=0 is refused: writes would be lost without an error.")
    return hosts or "the hosts of its SRV record"


def _redacted(text: str, credentials: str) -> str:
    """The driver's message, unless it repeats something of the credentials."""
    secrets = {credentials, unquote(credentials)}
    for plain in tuple(secrets):
        user, _, password = plain.partition(":")
        # A short name of a user is part of any text.
        secrets |= {password, *password.split(":"), user if len(user) >= _TELLING else ""}
    is_told = any(secret and secret in text for secret in secrets)
    return "the driver's message repeats credentials and is withheld" if is_told else text
