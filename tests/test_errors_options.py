"""Options and clients that cannot work: refused by the constructor, before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import mongomock
import mongomock_motor
import pymongo
import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from support.builders import checkpoint, config
from support.env import Env, scenario
from support.kinds import KINDS, ON_MONGOD, Kind
from support.raised import everything_said

from docstore_saver import AsyncDocStoreSaver, DocStoreSaver
from docstore_saver.errors import ConfigurationError, InvalidArgumentError, WrongFaceError

MiB = 1024 * 1024
NOWHERE = "mongodb://127.0.0.1:1/?connect=false"

WRONG: dict[str, list[Any]] = {
    "database": ["", "a/b", "a\\b", "a b", "a.b", 'a"b', "a$b", "a\0b", "d" * 64, "ä" * 32, 5, b"d", ["d"], True],
    "db_name": ["", "a.b", 5, b"d"],
    "collection_prefix": [5, None, b"p", "$p", "p\0", "p" * 61, "system.", ".p"],
    "ttl": [0, -1, "60", True, float("nan"), float("inf"), timedelta(0), timedelta(-1), 2**31, 2**40, [60], b"60"],
    "tenant": ["", 5, b"t", ["t"], {"$gt": ""}, True],
    "tenant_from": ["", 5, b"key", ["key"], {"$gt": ""}, True],
    "inline_limit": [-1, MiB + 1, 1.5, "16384", True, None, [1]],
    "delta_strategy": ["", "AUTO", "lookup", None, 5, ["auto"], {"auto"}, b"auto"],
    "dialect": ["", "oracle", "MongoDB", 5, ["mongodb"], {"mongodb": 1}],
    "indexed_metadata": ["user", [5], [None], ["user", b"k"], [["k"]]],
    "timeout": [0, -1, "5", True, float("nan"), float("inf"), timedelta(0), 2**40, [5]],
}

HARDER: dict[str, list[Any]] = {
    "database": ["d\ud800"],
    "collection_prefix": ["p\ud800"],
    "tenant": ["t\ud800", "t" * 2**20],
    # LangGraph's own keys: every thread, or every checkpoint, would be a tenant of its own.
    "tenant_from": ["thread_id", "checkpoint_id", "checkpoint_ns"],
    # A generator is empty after it was checked.
    "indexed_metadata": [5, None, True, (key for key in ("user",))],
    "auto_setup": ["no", None, 5],
    "serde": [5, object()],
    # The server takes no TTL index that reaches back before 1970.
    "ttl": [timedelta(days=365 * 66)],
}

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def cases(wrong: dict[str, list[Any]]) -> Any:
    pairs = [(name, value) for name, values in wrong.items() for value in values]
    return pytest.mark.parametrize(("name", "value"), pairs, ids=[f"{name}-{i}" for i, (name, _) in enumerate(pairs)])


@cases(WRONG)
def test_a_wrong_option(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name.replace("db_name", "database")) as caught:
        DocStoreSaver.in_memory(**{name: value})
    assert len(str(caught.value)) < 400


@cases(HARDER)
def test_a_wrong_option_that_is_harder_to_see(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name) as caught:
        DocStoreSaver.in_memory(**{name: value})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["database", "db_name", "collection_prefix", "delta_strategy", "dialect"])
def test_a_connection_string_in_the_wrong_place(name: str) -> None:
    """As when two arguments were exchanged: the message must not repeat it, nor anything else that is long."""
    for value in ("mongodb://secretuser:hunter2@h/", "x" * 2**20):
        with pytest.raises(ConfigurationError, match="database" if name == "db_name" else name) as caught:
            DocStoreSaver.in_memory(**{name: value})
        said = everything_said(caught.value)
        assert "hunter2" not in said
        assert len(str(caught.value)) < 400


@dataclass
class Session:
    """A callable without a hash, as every dataclass is."""

    user: str

    def __call__(self) -> str:
        return self.user


def test_any_callable_may_tell_the_tenant() -> None:
    saver = DocStoreSaver.in_memory(tenant_from=Session("acme"))
    saver.put(config(), checkpoint(1), {}, {})
    assert len(list(saver.list(None))) == 1


def test_two_names_of_the_database() -> None:
    DocStoreSaver.in_memory(database="a", db_name="a")
    with pytest.raises(ConfigurationError, match="two names of one option"):
        DocStoreSaver.in_memory(database="a", db_name="b")


@pytest.mark.parametrize("value", ["", 5, None, b"t", ["t"], {"$gt": ""}, "t\ud800", "t" * 2**20])
def test_a_wrong_tenant_of_a_clone(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="tenant") as caught:
        DocStoreSaver.in_memory().for_tenant(value)
    assert len(str(caught.value)) < 400


@each_kind
def test_unknown_options(kind: Kind) -> None:
    """Named, with what to write instead, wherever a saver is made."""
    client = mongomock_motor.AsyncMongoMockClient() if kind.is_async else mongomock.MongoClient()
    with pytest.raises(ConfigurationError, match="databse= is not an option"):
        kind.face(client, databse="x")
    with pytest.raises(ConfigurationError, match=r"maxPoolSize= is not an option.*from_conn_string"):
        kind.face(client, maxPoolSize=5)
    for name in ("checkpoint_collection_name", "writes_collection_name"):
        for make in (
            lambda **options: kind.face(client, **options),
            lambda **options: kind.face.from_conn_string("mongodb://h", **options),
            kind.face.in_memory,
        ):
            with pytest.raises(ConfigurationError, match=f"{name}= .*MongoDBSaver.*collection_prefix="):
                make(**{name: "mine"})


@each_kind
def test_no_client(kind: Kind) -> None:
    """What is easily taken for a client: its parts, and a connection string, whose text must not be repeated."""
    client = kind.make_client(NOWHERE)
    wrong = [
        client["db"],
        client["db"]["collection"],
        "mongodb://secretuser:hunter2@h",
        None,
        5,
        object(),
        type(client),
    ]
    for value in wrong:
        with pytest.raises(ConfigurationError, match=r"no client that this saver knows.*from_conn_string") as caught:
            kind.face(value)
        assert "hunter2" not in everything_said(caught.value)


@pytest.mark.parametrize("kind", ON_MONGOD, ids=lambda kind: kind.name)
@pytest.mark.parametrize("where", ["uri", "option"])
def test_unacknowledged_writes(kind: Kind, where: str) -> None:
    client = kind.make_client(NOWHERE + "&w=0") if where == "uri" else kind.make_client(NOWHERE, w=0)
    with pytest.raises(ConfigurationError, match="w=0"):
        kind.face(client)


@pytest.mark.parametrize("make", [pymongo.AsyncMongoClient, AsyncIOMotorClient, mongomock_motor.AsyncMongoMockClient])
def test_an_async_client_for_the_sync_face(make: Any) -> None:
    with pytest.raises(WrongFaceError, match="AsyncDocStoreSaver"):
        DocStoreSaver(make(NOWHERE))


@pytest.mark.parametrize("make", [pymongo.MongoClient, mongomock.MongoClient])
def test_a_sync_client_for_the_async_face(make: Any) -> None:
    client = make(NOWHERE)
    with pytest.raises(WrongFaceError, match=r"use DocStoreSaver\."):
        AsyncDocStoreSaver(client)
    client.close()


def test_the_wrong_context_manager() -> None:
    saver = AsyncDocStoreSaver.in_memory()
    with pytest.raises(WrongFaceError, match="async with"), saver:
        pass


@scenario
async def test_a_good_saver_after_a_refused_one(env: Env) -> None:
    """A refusal leaves the client as it was."""
    client = env.client()
    with env.commands.count() as sent, pytest.raises(ConfigurationError):
        env.kind.face(client, database="a b")
    assert sent == []
    store = env.open()
    await store.put(config(), checkpoint(1, {"x": 1}))
    assert (await store.get(config())).checkpoint["channel_values"] == {"x": 1}
