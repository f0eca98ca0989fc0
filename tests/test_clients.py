"""Clients: whose they are, what of their options counts, and which database a saver works on."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pymongo
import pytest
from bson.son import SON
from support.builders import chain, checkpoint, config
from support.commands import Commands
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, EMBEDDED, ON_MONGOD, PYMONGO
from support.made import made, over_client
from support.stores import Store

from docstore_saver.errors import ConfigurationError, UnavailableError

LEAKY = {
    "w": 1,
    "journal": False,
    "readPreference": "secondaryPreferred",
    "tz_aware": True,
    "document_class": SON,
    "uuidRepresentation": "standard",
    "unicode_decode_error_handler": "ignore",
}
WRITES = {"insert", "update", "delete"}
READS = {"find", "aggregate", "distinct", "count"}

on_mongod = pytest.mark.kinds(*ON_MONGOD)
made_by_saver = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO)


def require_our_options(commands: Commands) -> None:
    """Writes wait for a majority and reads ask the primary, whatever the client does by itself."""
    assert WRITES | {"find", "aggregate"} <= {name for name, _ in commands.sent}
    for name, body in commands.sent:
        if name in WRITES:
            assert body["writeConcern"] == {"w": "majority"}, name
        if name in READS:
            # To a directly connected member drivers always say primaryPreferred.
            assert body.get("$readPreference", {"mode": "primary"})["mode"] in ("primary", "primaryPreferred"), name


def is_plain(value: Any) -> bool:
    """Whether every document in it is a dict and nothing else, as it would be on a client without options."""
    if isinstance(value, dict):
        return type(value) is dict and all(is_plain(item) for item in value.values())
    return all(is_plain(item) for item in value) if isinstance(value, list | tuple) else True


@on_mongod
@scenario
async def test_options_of_the_client_do_not_leak_in(env: Env) -> None:
    # With a ttl: times that are aware of a zone could not be compared.
    own = {"database": env.database, "ttl": timedelta(days=300)}
    async with over_client(env, own, **LEAKY) as store:
        stored = await chain(store, 2, values=lambda n: {"x": {"n": n}, "large": "y" * 20_000})
        await store.put_writes(stored[-1], [("x", {"a": {"b": 1}}), ("__interrupt__", 1)], "task")
        await store.put_writes(stored[-1], [("__interrupt__", 2)], "task")
        found, listed = await store.get(config()), await store.list(config())
        await store.history(config(), ["x"])
        await store.delete_thread("another")
    require_our_options(env.commands)
    assert len(listed) == 2
    assert found.checkpoint["channel_values"] == {"x": {"n": 1}, "large": "y" * 20_000}
    assert found.pending_writes == [("task", "__interrupt__", 2), ("task", "x", {"a": {"b": 1}})]
    for item in (found, *listed):
        assert is_plain([item.checkpoint, item.metadata, item.config, item.parent_config, item.pending_writes])


@pytest.mark.kinds(*EMBEDDED)
@scenario
async def test_options_of_an_embedded_client_do_not_leak_in(env: Env) -> None:
    client = type(env.client())(tz_aware=True)
    store = Store(env.kind.face(client, env.database, ttl=timedelta(days=300)), env.kind, client)
    await chain(store, 2)
    assert len(await store.list(config())) == 2


@scenario
async def test_a_given_client_stays_open(env: Env) -> None:
    store = env.open()
    await chain(store, 1)
    for _ in range(2):
        await store.call("close")
    assert (await store.get(config())).checkpoint["channel_values"] == {"x": 0}  # the saver works on
    names = store.client[env.database].list_collection_names()
    assert "docstore_checkpoints" in (await names if inspect.isawaitable(names) else names)


@made_by_saver
@scenario
async def test_a_client_of_the_savers_own_is_closed(env: Env) -> None:
    """By the context manager; and a saver that was never used closes as well."""
    async with made(env, env.uri, env.database) as store:
        if env.kind.is_async:
            async with store.saver as entered:
                await chain(store, 1)
        else:
            with store.saver as entered:
                await chain(store, 1)
        assert entered is store.saver
        with pytest.raises(ConfigurationError, match="closed"):
            await store.get(config())
    async with made(env, env.uri):
        pass


@scenario
async def test_several_savers_share_a_client(env: Env) -> None:
    client = env.client()
    savers = [env.kind.face(client, env.database, collection_prefix=prefix) for prefix in ("a_", "b_")]
    stores = [Store(saver, env.kind, client) for saver in savers]
    for n, store in enumerate(stores):
        await store.put(config(), checkpoint(n, {"x": n}))
    await stores[0].call("close")
    for n, store in enumerate(stores):
        assert [item.checkpoint["channel_values"] for item in await store.list(None)] == [{"x": n}]


@pytest.mark.kinds(PYMONGO, *EMBEDDED)
@scenario
async def test_the_prefix_of_the_collections(env: Env) -> None:
    for options in ({}, {"collection_prefix": "Ü.x-"}, {"collection_prefix": ""}):
        await chain(env.open(**options), 1)
    found = {name for name in env.raw.list_collection_names() if name.endswith("checkpoints")}
    assert found == {"docstore_checkpoints", "Ü.x-checkpoints", "checkpoints"}


@pytest.mark.parametrize(
    ("of_uri", "options", "expected"),
    [
        ("", {}, "docstore"),
        ("of_uri", {}, "of_uri"),
        ("of_uri", {"database": "given"}, "given"),
        ("", {"db_name": "given"}, "given"),
        ("of_uri", {"database": "given", "db_name": "given"}, "given"),
    ],
)
@made_by_saver
@scenario
async def test_the_database(env: Env, of_uri: str, options: dict[str, str], expected: str) -> None:
    """The option, else the connection string's, else the default. Only read here: they are not the test's own."""
    head, _, query = env.uri.partition("?")
    uri = f"{head.rstrip('/')}/{of_uri}?{query}"
    own = {**options, "auto_setup": False}
    for opening in (made(env, uri, **own), over_client(env, own, uri)):
        async with opening as store:
            with env.commands.count() as sent:
                assert await store.get(config(uuid.uuid4().hex)) is None
        assert {body["$db"] for _, body in sent} == {expected}


@made_by_saver
@scenario
async def test_the_second_argument_is_the_database(env: Env) -> None:
    """As MongoDBSaver has it."""
    async with made(env, env.uri, env.database) as store:
        await chain(store, 1)
    client = env.client()
    assert await Store(env.kind.face(client, env.database), env.kind, client).get(config()) is not None


@made_by_saver
@scenario
async def test_client_options_reach_the_driver(env: Env) -> None:
    """And options of the saver do not."""
    name = f"app-{uuid.uuid4().hex}"
    own = {"ttl": 1_000_000, "serde": None, "inline_limit": 100, "indexed_metadata": ["user"]}
    async with made(env, env.uri, env.database, appname=name, maxPoolSize=3, **own) as store:
        await chain(store, 1)
        seen = env.raw.client.admin.aggregate([{"$currentOp": {"allUsers": True, "idleConnections": True}}])
        assert name in {operation.get("appName") for operation in seen}


@pytest.mark.kinds(*EMBEDDED)
@pytest.mark.parametrize("method", ["from_conn_string", "in_memory"])
@scenario
async def test_the_embedded_store(env: Env, method: str) -> None:
    """Each saver has a store of its own; options are the same as everywhere."""
    face = env.kind.face
    make = face.in_memory if method == "in_memory" else lambda **options: face.from_conn_string("memory://", **options)
    store, other = (Store(make(database="d", ttl=1_000_000), env.kind, None) for _ in range(2))
    await chain(store, 2)
    assert len(await store.list(None)) == 2
    assert await other.list(None) == []
    tenant = store.over(make(tenant="acme"))
    await chain(tenant, 1)
    assert len(await tenant.list(None)) == 1
    await store.call("close")


LIGHT = """
import sys
import pymongo, langgraph.checkpoint.base, langgraph.checkpoint.serde.encrypted
before = set(sys.modules)
import docstore_saver
docstore_saver.DocStoreSaver.from_conn_string("mongodb://127.0.0.1:1/").close()
optional = {"motor", "mongomock", "mongomock_motor", "cryptography", "typer", "rich", "starlette", "pytest"}
print(*sorted(optional & {name.partition(".")[0] for name in set(sys.modules) - before}))

sys.modules["mongomock"] = sys.modules["mongomock_motor"] = None  # as if they were not installed
for saver in (docstore_saver.DocStoreSaver, docstore_saver.AsyncDocStoreSaver):
    try:
        saver.in_memory()
    except ValueError as error:
        print(type(error).__name__, error)
"""


def test_the_base_path_is_light() -> None:
    """Optional packages are not imported before something needs them, and what needs them names the extra."""
    ended = subprocess.run([sys.executable, "-W", "error", "-c", LIGHT], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    imported, *refusals = ended.stdout.splitlines()
    assert imported == ""
    assert len(refusals) == 2
    assert all(line.startswith("ConfigurationError") and "docstore_saver[embedded]" in line for line in refusals)


@pytest.fixture
def slow(env: Env) -> Iterator[str]:
    """The server takes far too long over every command of clients with this name."""
    if "DOCSTORE_TEST_URI" in os.environ:
        pytest.skip("needs a server with fail points; the run has a given one")
    name = f"slow-{uuid.uuid4().hex}"
    admin = env.raw.client.admin
    blocked = {"failCommands": [*WRITES, *READS], "blockConnection": True, "blockTimeMS": 2000, "appName": name}
    admin.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": blocked})
    yield name
    admin.command({"configureFailPoint": "failCommand", "mode": "off"})


@on_mongod
@scenario
async def test_the_timeout_bounds_every_operation(env: Env, slow: str) -> None:
    """Setup included; a hung server is as good as none."""
    await chain(env.open(), 1)
    for options in ({"timeout": 0.4}, {"timeout": timedelta(seconds=0.4), "auto_setup": False}):
        async with over_client(env, {"database": env.database, **options}, appname=slow) as store:
            started = time.monotonic()
            with pytest.raises(UnavailableError, match="No server answered"):
                await (store.put(config(), checkpoint(1)) if "auto_setup" in options else store.get(config()))
            assert time.monotonic() - started < 1.7


@on_mongod
@scenario
async def test_the_timeout_of_one_saver_is_its_own(env: Env) -> None:
    """A generous one changes nothing, and none of it stays behind for the caller's own commands."""
    store = env.open(timeout=30)
    await chain(store, 2)
    assert len(await store.list(config())) == 2
    assert pymongo._csot.get_timeout() is None
