"""Savers that bring their own client, closed at the end whatever happens."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.env import Env
from support.stores import Store


async def close_client(client: Any) -> None:
    """Close a client of any kind."""
    closing = client.close()
    if inspect.isawaitable(closing):
        await closing


async def let_attempts_end(env: Env) -> None:
    """AsyncMongoClient loses the socket of an attempt to connect that its close() interrupts: wait for a refusal."""
    if env.kind.is_async:
        await asyncio.sleep(0.1)


@asynccontextmanager
async def made(env: Env, uri: Any, *args: Any, **options: Any) -> AsyncIterator[Store]:
    """A saver made from a connection string; the test's listener hears its client."""
    listening = {} if uri == "memory://" else {"event_listeners": [env.commands]}
    store = Store(env.kind.face.from_conn_string(uri, *args, **listening, **options), env.kind, None)
    try:
        yield store
    finally:
        await store.call("close")


@asynccontextmanager
async def over_client(env: Env, saver: dict[str, Any], uri: str = "", **options: Any) -> AsyncIterator[Store]:
    """A saver with these options over a client of the test's own with those."""
    client = env.kind.make_client(uri or env.uri, event_listeners=[env.commands], **options)
    try:
        yield Store(env.kind.face(client, **saver), env.kind, client)
    finally:
        await close_client(client)
