"""Servers that do not answer, connection strings that cannot work: clear errors of ours, and no credentials in them."""

from __future__ import annotations

import inspect
import time
from typing import Any

import dns.asyncresolver
import dns.resolver
import pymongo
import pytest
from support.builders import checkpoint, config
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, ON_MONGOD, PYMONGO
from support.made import close_client, let_attempts_end, made, over_client
from support.raised import everything_said

from docstore_saver import errors
from docstore_saver.errors import ConfigurationError, DocStoreError, StorageError, UnavailableError

USER, PASSWORD = "secretuser", "hunter2"
NOBODY = f"mongodb://{USER}:{PASSWORD}@127.0.0.1:1/?serverSelectionTimeoutMS=100"
"""No server listens on port 1."""

TREE = {
    errors.ConfigurationError: (DocStoreError, ValueError),
    errors.InvalidArgumentError: (DocStoreError, ValueError),
    errors.WrongFaceError: (DocStoreError,),
    errors.WrongLoopError: (DocStoreError, RuntimeError),
    errors.TenantRequiredError: (DocStoreError,),
    errors.RetentionRefusedError: (DocStoreError,),
    errors.StorageError: (DocStoreError,),
    errors.DocumentTooLargeError: (StorageError,),
    errors.UnsupportedByServerError: (StorageError,),
    errors.ThrottledError: (StorageError,),
    errors.UnavailableError: (StorageError,),
    errors.IncompleteCheckpointError: (StorageError,),
    errors.ThreadExpiredError: (StorageError,),
    errors.DecodingError: (DocStoreError,),
    errors.DecryptionError: (errors.DecodingError,),
    errors.UnknownKeyError: (errors.DecodingError,),
    errors.FormatVersionError: (errors.DecodingError,),
}

on_mongod = pytest.mark.kinds(*ON_MONGOD)
made_by_saver = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO)


def require_no_credentials(error: BaseException, *more: str) -> None:
    """Neither in the error nor in what stands behind it."""
    said = everything_said(error)
    assert not [secret for secret in (USER, PASSWORD, *more) if secret in said], said


def refusal(env: Env, uri: Any, match: str | None = None, **options: Any) -> BaseException:
    """The error with which from_conn_string must refuse this."""
    with pytest.raises(ConfigurationError, match=match) as caught:
        env.kind.face.from_conn_string(uri, **options)
    return caught.value


def test_the_tree() -> None:
    found = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DocStoreError)}
    assert found == {DocStoreError, *TREE}
    assert {kind: kind.__bases__ for kind in TREE} == TREE
    assert DocStoreError.__bases__ == (Exception,)


@pytest.mark.parametrize("kind", [DocStoreError, *TREE])
def test_docstrings_are_default_messages(kind: type[DocStoreError]) -> None:
    assert "__doc__" in vars(kind)
    assert str(kind()) == inspect.cleandoc(kind.__doc__ or "")
    assert str(kind("another")) == "another"


@on_mongod
@scenario
async def test_an_unreachable_server(env: Env) -> None:
    """Told within the server-selection timeout (and half a second of the driver's): where it looked, what to check."""
    async with over_client(env, {"database": "docstore"}, NOBODY) as store:
        for call in (
            lambda: store.call("setup"),
            lambda: store.list(None),
            lambda: store.put(config(), checkpoint(1)),
        ):
            started = time.monotonic()
            with pytest.raises(UnavailableError, match=r"Check that it runs.*127\.0\.0\.1:1") as caught:
                await call()
            assert time.monotonic() - started < 2
            require_no_credentials(caught.value)
            assert isinstance(caught.value.__cause__, pymongo.errors.ServerSelectionTimeoutError)
        await let_attempts_end(env)


@made_by_saver
@scenario
async def test_an_unreachable_server_of_a_connection_string(env: Env) -> None:
    async with made(env, NOBODY.replace("127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2")) as store:
        with pytest.raises(UnavailableError, match=r"No server answered at 127\.0\.0\.1:1,127\.0\.0\.1:2\.") as caught:
            await store.get(config())
        await let_attempts_end(env)
    require_no_credentials(caught.value)


@made_by_saver
@scenario
async def test_an_srv_record_that_does_not_exist(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a cluster that was deleted or mistyped."""

    def resolve(*_: Any, **__: Any) -> Any:
        raise dns.resolver.NXDOMAIN(qnames=["_mongodb._tcp.gone.example.net."])

    async def aresolve(*_: Any, **__: Any) -> Any:
        resolve()

    monkeypatch.setattr(dns.resolver, "resolve", resolve)
    monkeypatch.setattr(dns.asyncresolver, "resolve", aresolve)
    async with made(env, f"mongodb+srv://{USER}:{PASSWORD}@gone.example.net/") as store:
        with pytest.raises(UnavailableError, match=r"gone\.example\.net.*Check") as caught:
            await store.get(config())
    require_no_credentials(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "mongodb://",
        "agents",
        "127.0.0.1:27017",
        f"http://{USER}:{PASSWORD}@h/",
        f"{USER}:{PASSWORD}@h",
        f"mongodb:/{USER}:{PASSWORD}@h",
        f"mongodb://{USER}:{PASSWORD}@",
        f"mongodb://{USER}:p@{PASSWORD}@h/",
        f"mongodb://{USER}:p:{PASSWORD}@h/",
        f"mongodb://{USER}:{PASSWORD}%@h/",
        f"mongodb://{USER}:{PASSWORD}/x@h/db",
        f"mongodb://{USER}:x/{PASSWORD}@h/db",
        f"mongodb://{USER}:{PASSWORD}?x@h/",
        f"mongodb://{USER}:{PASSWORD}@h:port/",
        f"mongodb://{USER}:{PASSWORD}@h:99999/",
        f"mongodb://{USER}:{PASSWORD}@[::1/",
        f"mongodb://{USER}:{PASSWORD}@h/?w=0",
        f"mongodb://{USER}:{PASSWORD}@h/?replicaSet",
        f"mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN={PASSWORD}",
        f"memory://{USER}:{PASSWORD}@h",
    ],
)
@made_by_saver
def test_unusable_connection_strings(env: Env, uri: str) -> None:
    """Refused at once, with the form that is expected."""
    require_no_credentials(refusal(env, uri, r"mongodb://user:password@host|w=0"))


@pytest.mark.parametrize(
    "uri",
    [
        f"mongodb+srv://{USER}:p@{PASSWORD}@cluster.example.net/",
        f"mongodb+srv://{USER}:{PASSWORD}@cluster.example.net:27017/",
        f"mongodb+srv://{USER}:{PASSWORD}@a.example.net,b.example.net/",
        f"mongodb+srv://{USER}:{PASSWORD}@cluster.example.net/?w=0",
        "mongodb+srv://",
    ],
)
@made_by_saver
def test_unusable_srv_connection_strings(env: Env, uri: str) -> None:
    """The same where the hosts stand in a DNS record, which is not looked up before the first use."""
    require_no_credentials(refusal(env, uri))


@pytest.mark.parametrize(
    ("uri", "hosts"),
    [
        ("mongodb://h", "h"),
        ("mongodb://a,b:1,c/db?replicaSet=r", "a,b:1,c"),
        ("mongodb://[::1]:5/", "[::1]:5"),
        ("mongodb://user:p%40ss%2Fw@h:1/db", "h:1"),
        ("mongodb://user:pass@h/?appName=me@work", "h"),
        ("mongodb://h/?appName=me@work", "h"),
        ("mongodb+srv://user:p%40ss@c.example.net/?appName=me@work", "c.example.net"),
    ],
)
@made_by_saver
def test_usable_connection_strings(env: Env, uri: str, hosts: str) -> None:
    """The hosts are for messages; an @ among the options is none of the credentials'."""
    assert env.kind.face.from_conn_string(uri)._source.hosts == hosts


@made_by_saver
def test_a_password_with_a_slash_is_not_shown_as_a_host(env: Env) -> None:
    """The driver takes what stands before the first slash for host and port, if it can."""
    require_no_credentials(refusal(env, f"mongodb://{USER}:4711/{PASSWORD}@h", "escaped"), "4711")


@pytest.mark.parametrize("uri", [None, 5, b"mongodb://h", ["mongodb://h"], {"host": "h"}], ids=repr)
@made_by_saver
def test_a_connection_string_is_a_str(env: Env, uri: Any) -> None:
    refusal(env, uri, "connection string is a str")


@pytest.mark.parametrize(
    "options",
    [
        {"nosuch": 1},
        {"w": 0},
        {"password": 5, "username": USER},
        {"password": PASSWORD.encode(), "username": USER},
        {"authMechanism": "none", "username": USER, "password": PASSWORD},
        {"timeoutMS": "soon"},
        {"maxPoolSize": -1},
        {"replicaSet": 5},
        {"tlsCAFile": "/no/such/file", "tls": True},
    ],
    ids=["nosuch", "w", "password int", "password bytes", "mechanism", "timeoutMS", "maxPoolSize", "replicaSet", "tls"],
)
@made_by_saver
def test_options_that_the_driver_refuses(env: Env, options: dict[str, Any]) -> None:
    require_no_credentials(refusal(env, "mongodb://h", next(iter(options)), **options))


@made_by_saver
@scenario
async def test_a_closed_saver(env: Env) -> None:
    async with made(env, env.uri, env.database) as store:
        await store.put(config(), checkpoint(1))
        await store.call("close")
        for call in (lambda: store.get(config()), lambda: store.put(config(), checkpoint(2))):
            with pytest.raises(ConfigurationError, match="closed"):
                await call()


@on_mongod
@scenario
async def test_a_closed_client(env: Env) -> None:
    """The user's own, closed behind the saver's back: before its first use, and after."""
    for is_used in (False, True):
        store = env.open()
        if is_used:
            await store.put(config(), checkpoint(1))
        await close_client(store.client)
        with pytest.raises(ConfigurationError, match="client of this saver is closed"):
            await store.get(config())
