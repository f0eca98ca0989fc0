"""A server with users: who may not make indexes still runs on a prepared store, and who may not write is told so."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymongo
import pytest
from support.builders import chain, checkpoint, config
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, PYMONGO
from support.raised import everything_said
from support.stores import Store

from docstore_saver import DocStoreSaver
from docstore_saver.devserver import find_binary
from docstore_saver.errors import StorageError

ADMIN, PASSWORD = "root", "correct-horse"
ROLES = {"agent": ["find", "insert", "update", "remove"], "reader": ["find"], "stranger": []}
COLLECTIONS = ("docstore_checkpoints", "docstore_writes", "docstore_values")

pytestmark = [
    pytest.mark.kinds(PYMONGO),
    pytest.mark.skipif("DOCSTORE_TEST_URI" in os.environ, reason="needs a mongod with users of its own"),
]


@contextmanager
def mongod_with_users(data: Path) -> Iterator[str]:
    """A replica set of one that asks for a password; answers host and port. DevServer has no users, and should not."""
    key = data / "key"
    key.write_text("docstore" * 8)
    key.chmod(0o600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    options = {"dbpath": data, "port": host[10:], "bind_ip": "127.0.0.1", "replSet": "users", "keyFile": key}
    options |= {"unixSocketPrefix": data, "logpath": data / "log", "wiredTigerCacheSizeGB": "0.25"}
    arguments = [str(text) for name, value in options.items() for text in (f"--{name}", value)]
    with subprocess.Popen([find_binary(), "--auth", *arguments], stdout=subprocess.DEVNULL) as process:
        try:
            _initiate(host)
            yield host
        finally:
            process.terminate()
            process.wait(30)


def _initiate(host: str) -> None:
    """The first user is made without one: mongod allows that from its own machine."""
    with pymongo.MongoClient[Any](
        f"mongodb://{host}/?directConnection=true", serverSelectionTimeoutMS=20_000
    ) as client:
        client.admin.command("replSetInitiate", {"_id": "users", "members": [{"_id": 0, "host": host}]})
        while not client.admin.command("hello").get("isWritablePrimary"):
            time.sleep(0.02)
        client.admin.command("createUser", ADMIN, pwd=PASSWORD, roles=["root"])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("mongod-with-users")
    with mongod_with_users(data) as host:
        yield host
    shutil.rmtree(data, ignore_errors=True)


def as_user(host: str, user: str, password: str = PASSWORD) -> str:
    return f"mongodb://{user}:{password}@{host}/?directConnection=true&authSource=admin"


@pytest.fixture
def admin(env: Env, secured: str) -> Iterator[pymongo.MongoClient[Any]]:
    """The server with users in place of the ordinary one, and a user of each role for the test's own database."""
    with pymongo.MongoClient[Any](as_user(secured, ADMIN)) as client:
        for role, actions in ROLES.items():
            name = f"{role}-{env.database}"
            where = [{"resource": {"db": env.database, "collection": c}, "actions": actions} for c in COLLECTIONS]
            client.admin.command("createRole", name, privileges=where if actions else [], roles=[])
            client.admin.command("createUser", name, pwd=PASSWORD, roles=[name])
        yield client
        client.drop_database(env.database)


def open_as(env: Env, secured: str, role: str, **options: Any) -> Store:
    """A saver whose client is such a user's."""
    env.uri = as_user(secured, f"{role}-{env.database}")
    return env.open(**options)


def prepare(env: Env, secured: str, **options: Any) -> None:
    with DocStoreSaver.from_conn_string(as_user(secured, ADMIN), database=env.database, **options) as saver:
        saver.setup()


@pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO)
@scenario
async def test_a_prepared_store(env: Env, admin: Any, secured: str, caplog: pytest.LogCaptureFixture) -> None:
    """The role of an application needs four actions; setup() by an administrator needs more."""
    prepare(env, secured, ttl=1_000_000)
    indexes = admin[env.database]["docstore_checkpoints"].index_information()
    with caplog.at_level(logging.WARNING, "docstore_saver"):
        store = open_as(env, secured, "agent")
        await chain(store, 2, values=lambda n: {"x": n, "large": "y" * 20_000})
    assert "may not create indexes" in caplog.text
    head = await store.get(config())
    await store.put_writes(head.config, [("x", 5)], "task")
    assert (await store.get(config())).pending_writes == [("task", "x", 5)]
    assert len(await store.list(config())) == 2
    assert (await store.history(config(), ["x"]))["x"]["seed"] == 0
    # It knows the store's ttl without a look at the indexes.
    assert admin[env.database]["docstore_checkpoints"].count_documents({"active_at": None}) == 0
    await store.delete_thread("t")
    assert await store.list(None) == []
    assert admin[env.database]["docstore_checkpoints"].index_information() == indexes


@scenario
async def test_the_ttl_of_a_prepared_store(env: Env, admin: Any, secured: str) -> None:
    """The one that the store has is fine; another one is an administrator's business, and says so."""
    prepare(env, secured, ttl=1_000_000)
    await chain(open_as(env, secured, "agent", ttl=1_000_000), 1)
    with pytest.raises(StorageError, match=r"setup\(\) by an administrator") as caught:
        await open_as(env, secured, "agent", ttl=2_000_000).get(config())
    assert caught.value.code == 13
    assert admin[env.database]["docstore_values"].find_one({"_id": "settings"})["ttl"] == 1_000_000


@scenario
async def test_without_setup(env: Env, admin: Any, secured: str) -> None:
    """No index is asked for, and none is missed by what is stored."""
    prepare(env, secured)
    store = open_as(env, secured, "agent", auto_setup=False)
    with env.commands.count() as sent:
        await chain(store, 1)
    assert "createIndexes" not in {name for name, _ in sent}
    assert len(await store.list(config())) == 1


@scenario
async def test_who_may_only_read(env: Env, admin: Any, secured: str) -> None:
    prepare(env, secured)
    await chain(open_as(env, secured, "agent"), 1)
    reader = open_as(env, secured, "reader")
    assert (await reader.get(config())).checkpoint["channel_values"] == {"x": 0}
    for call in (
        lambda: reader.put(config(), checkpoint(1)),
        lambda: reader.put_writes(config(id="a"), [("x", 1)], "task"),
        lambda: reader.delete_thread("t"),
    ):
        with pytest.raises(StorageError, match="needs find, insert, update and remove") as caught:
            await call()
        assert caught.value.code == 13
        assert PASSWORD not in everything_said(caught.value)
    assert len(await reader.list(config())) == 1


@scenario
async def test_who_may_nothing(env: Env, admin: Any, secured: str) -> None:
    with pytest.raises(StorageError, match="needs find, insert, update and remove") as caught:
        await open_as(env, secured, "stranger").get(config())
    assert caught.value.code == 13


@pytest.mark.parametrize("user", ["nobody", ADMIN])
@scenario
async def test_a_wrong_password(env: Env, secured: str, user: str) -> None:
    env.uri = as_user(secured, user, "battery-staple")
    with pytest.raises(StorageError, match="Authentication failed") as caught:
        await env.open().get(config())
    said = everything_said(caught.value)
    assert caught.value.code == 18
    assert "battery-staple" not in said
    assert f"{user}:" not in said


@scenario
async def test_no_password(env: Env, secured: str) -> None:
    env.uri = f"mongodb://{secured}/?directConnection=true"
    with pytest.raises(StorageError, match="requires authentication") as caught:
        await env.open().get(config())
    assert caught.value.code == 13
