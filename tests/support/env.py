"""What a test gets: a kind of client, savers on the test's own database, and a way to run the test's body."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import bson
import pymongo

from support.commands import Commands
from support.kinds import Kind
from support.stores import Store

T = TypeVar("T")

MOST_CLIENTS = 12
"""Every client has threads and sockets of its own; a test that opens more savers shares the last one."""


class Env:
    """One test's view of one kind of client."""

    def __init__(self, kind: Kind, database: str, uri: str, raw_client: pymongo.MongoClient[Any] | None) -> None:
        self.kind, self.database, self.uri = kind, database, uri
        self.commands = Commands()
        self._raw_client = raw_client
        self._clients: list[Any] = []
        self._runner: asyncio.Runner | None = None

    def open(self, **options: Any) -> Store:
        """A saver. On a server each has a client of its own, as another process would; embedded stores share theirs."""
        face, client = self.kind.face, self.client()
        return Store(face(client, **{"database": self.database, **options}), self.kind, client)

    def client(self) -> Any:
        if self._clients and not self.kind.needs_server:
            return self._clients[0]
        if len(self._clients) >= MOST_CLIENTS:
            return self._clients[-1]
        client = self.kind.make_client(self.uri, event_listeners=[self.commands])
        self._clients.append(client)
        return client

    @property
    def raw(self) -> Any:
        """The database from outside, through a sync client."""
        if self._raw_client is not None:
            return self._raw_client[self.database]
        client = self.client()
        # mongomock-motor keeps the mongomock client that it wraps under a mangled name.
        inner = getattr(client, "_AsyncMongoMockClient__client") if self.kind.is_async else client  # noqa: B009
        return inner[self.database]

    def raw_bytes(self) -> bytes:
        """Everything that is stored."""
        return b"".join(bson.encode(doc) for name in self.raw.list_collection_names() for doc in self.raw[name].find())

    def run(self, body: Callable[[], Coroutine[Any, Any, None]], *, in_loop: bool = False) -> None:
        """Run a body: in an event loop for an async kind, where none exists at all for a sync one (or `in_loop`)."""
        if in_loop and not self.kind.is_async:
            with self.session():
                asyncio.run(body())
        else:
            with self.session():
                self.do(body())

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Within it `do` runs coroutines one after another, on one event loop for an async kind."""
        with asyncio.Runner() if self.kind.is_async else contextlib.nullcontext() as self._runner:
            try:
                yield
            finally:
                self.do(self._close())

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._runner is not None:
            return self._runner.run(coroutine)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # StopIteration is untyped
        raise AssertionError("the body of a sync test suspended")

    async def _close(self) -> None:
        if self.kind.needs_server:
            for client in self._clients:
                closing = client.close()
                if inspect.isawaitable(closing):
                    await closing
            self._clients.clear()


def scenario(body: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine that takes `env` (and other fixtures). It is written once for both faces."""

    @functools.wraps(body)
    def test(env: Env, **fixtures: Any) -> None:
        env.run(lambda: body(env, **fixtures))

    return test
