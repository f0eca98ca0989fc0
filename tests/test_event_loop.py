"""Loops, threads and the two faces: what may be called where, what is made when, and that setup runs once."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dns.resolver
import pymongo
import pytest
from support.builders import checkpoint, config, metadata
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, MONGOMOCK, MONGOMOCK_MOTOR, MOTOR, ON_MONGOD, PYMONGO

from docstore_saver import AsyncDocStoreSaver, DocStoreSaver
from docstore_saver.errors import StorageError, WrongFaceError, WrongLoopError

UNREACHABLE = [
    "mongodb://192.0.2.1:27017,192.0.2.2:27017/db?replicaSet=rs",
    "mongodb://user:secret@cluster.example.invalid/",
    "mongodb+srv://user:secret@cluster.example.invalid/agents?retryWrites=true",
]


# Constructors.


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every attempt to reach the network, which is refused."""
    tried: list[str] = []

    def refuse(name: str) -> Callable[..., Any]:
        def refused(*_: Any, **__: Any) -> Any:
            tried.append(name)
            raise OSError(name)

        return refused

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse(name))
    for name in ("getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse(name))
    monkeypatch.setattr(dns.resolver.Resolver, "resolve", refuse("resolve"))
    return tried


@pytest.mark.parametrize("uri", UNREACHABLE)
@pytest.mark.parametrize("face", [DocStoreSaver, AsyncDocStoreSaver])
@pytest.mark.parametrize("in_loop", [False, True])
def test_a_constructor_does_not_touch_the_network(face: Any, uri: str, network: list[str], *, in_loop: bool) -> None:
    async def body() -> None:
        make(face, uri)

    began = time.perf_counter()
    if in_loop:
        asyncio.run(body())
    else:
        make(face, uri)
    assert time.perf_counter() - began < 0.5
    # Nor do threads that it left behind.
    time.sleep(0.05)
    assert network == []


def make(face: Any, uri: str) -> None:
    saver = face.from_conn_string(uri, database="agents", ttl=60)
    assert saver.get_next_version(None, None)
    assert saver.with_allowlist([("here", "There")]).for_tenant("a").config_specs is not None


# Loops.


@pytest.fixture
def database(raw_client: pymongo.MongoClient[Any]) -> Iterator[str]:
    name = f"docstore_test_{uuid.uuid4().hex[:16]}"
    yield name
    raw_client.drop_database(name)


@pytest.fixture
def unclosed() -> Iterator[None]:
    """A client that its loop leaves behind, as `asyncio.run` does with every call here, cannot be closed any more."""
    yield
    gc.collect()


left_behind = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)


async def put(saver: Any, thread: str = "t", n: int = 1) -> Any:
    return await saver.aput(config(thread), checkpoint(n, {"x": n}), metadata(), {"x": n + 1})


@pytest.mark.kinds(ASYNC_PYMONGO, MOTOR)
def test_a_given_client_is_refused_on_a_second_loop_before_any_command(env: Env) -> None:
    with env.session():
        store = env.open()
        env.do(put(store.saver))
        with env.commands.count() as sent:
            for call in second_loop_calls(store.saver):
                with pytest.raises(WrongLoopError, match="different event loop") as caught:
                    asyncio_run_in_thread(call)
                assert isinstance(caught.value, RuntimeError)
        assert sent == []
        assert env.do(store.saver.aget_tuple(config()))


def second_loop_calls(saver: Any) -> list[Callable[[], Any]]:
    async def alist() -> list[Any]:
        return [item async for item in saver.alist(config())]

    return [
        saver.asetup,
        alist,
        lambda: put(saver),
        lambda: saver.aput_writes(config(id="1"), [("x", 1)], "task"),
        lambda: saver.aget_tuple(config()),
        lambda: saver.adelete_thread("t"),
        lambda: saver.aget_delta_channel_history(config=config(), channels=["x"]),
        lambda: saver.for_tenant("a").aget_tuple(config()),
    ]


def asyncio_run_in_thread(make: Callable[[], Any]) -> Any:
    """On a loop of its own, while the first one exists but does not run."""

    async def body() -> Any:
        return await make()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, body()).result()


@left_behind
@pytest.mark.usefixtures("unclosed")
def test_a_made_client_serves_one_loop_after_another(mongod_uri: str, database: str) -> None:
    saver = AsyncDocStoreSaver.from_conn_string(mongod_uri, database)

    async def work(n: int) -> None:
        await put(saver, n=n)
        # The sync methods have moved to this loop, too.
        assert (await asyncio.to_thread(saver.get_tuple, config())).checkpoint["channel_values"] == {"x": n}

    for n in range(1, 4):
        asyncio.run(work(n))
    found = asyncio.run(saver.aget_tuple(config()))
    assert found.checkpoint["channel_values"] == {"x": 3}
    asyncio.run(saver.aclose())


@left_behind
@pytest.mark.usefixtures("unclosed")
def test_a_made_client_serves_two_loops_at_once(mongod_uri: str, database: str) -> None:
    saver = AsyncDocStoreSaver.from_conn_string(mongod_uri, database)
    barrier = threading.Barrier(2)

    async def work(thread: str) -> list[int]:
        barrier.wait(10)
        for n in range(20):
            await put(saver, thread, n)
        return [item.checkpoint["channel_values"]["x"] async for item in saver.alist(config(thread))]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda name: asyncio.run(work(name)), ["a", "b"])) == [list(range(19, -1, -1))] * 2


# Sync methods of the async saver.


def sync_calls(saver: Any) -> dict[str, Callable[[], Any]]:
    return {
        "setup": saver.setup,
        "put": lambda: saver.put(config(), checkpoint(1, {"x": 1}), metadata(), {"x": 2}),
        "put_writes": lambda: saver.put_writes(config(id=checkpoint(1)["id"]), [("log", 1)], "task"),
        "get_tuple": lambda: saver.get_tuple(config()),
        "get": lambda: saver.get(config()),
        "list": lambda: list(saver.list(config(), limit=5)),
        "get_delta_channel_history": lambda: saver.get_delta_channel_history(config=config(), channels=["log"]),
        "delete_thread": lambda: saver.delete_thread("t"),
        "close": saver.close,
    }


@pytest.mark.kinds(ASYNC_PYMONGO, MOTOR, MONGOMOCK_MOTOR)
@scenario
async def test_sync_methods_work_from_another_thread(env: Env) -> None:
    saver = env.open().saver
    await saver.asetup()
    answers = {name: await asyncio.to_thread(call) for name, call in sync_calls(saver).items()}
    assert answers["put"]["configurable"]["checkpoint_id"] == checkpoint(1)["id"]
    assert answers["get_tuple"].checkpoint["channel_values"] == {"x": 1}
    assert answers["get_tuple"].pending_writes == [("task", "log", 1)]
    assert answers["get"]["channel_values"] == {"x": 1}
    assert answers["list"] == [answers["get_tuple"]]
    assert answers["get_delta_channel_history"] == {"log": {"writes": []}}
    assert await asyncio.to_thread(saver.get_tuple, config()) is None


@pytest.mark.kinds(ASYNC_PYMONGO, MOTOR, MONGOMOCK_MOTOR)
@scenario
async def test_sync_methods_are_refused_on_the_loops_own_thread(env: Env) -> None:
    saver = env.open().saver
    for name, call in sync_calls(saver).items():
        refused_at_once(name, call)
    await saver.asetup()
    with env.commands.count() as sent:
        for name, call in sync_calls(saver).items():
            refused_at_once(name, call)
    assert sent == []


@pytest.mark.kinds(ASYNC_PYMONGO, MOTOR, MONGOMOCK_MOTOR)
def test_sync_methods_are_refused_while_no_loop_runs(env: Env) -> None:
    with env.session():
        saver = env.open().saver
        for name, call in sync_calls(saver).items():
            refused_at_once(name, call)
        env.do(saver.asetup())
        # The loop is there, but it stands still: waiting for it would take for ever.
        for name, call in sync_calls(saver).items():
            refused_at_once(name, call)


def refused_at_once(name: str, call: Callable[[], Any]) -> None:
    began = time.perf_counter()
    with pytest.raises(WrongFaceError, match="DocStoreSaver"):
        call()
    assert time.perf_counter() - began < 0.2, name


def test_each_face_refuses_the_others_with() -> None:
    with pytest.raises(WrongFaceError, match="async with"), AsyncDocStoreSaver.in_memory():
        pass


# Async methods of the sync saver.


@pytest.mark.kinds(PYMONGO, MONGOMOCK)
def test_async_methods_of_the_sync_saver(env: Env) -> None:
    async def body() -> None:
        saver = env.open().saver
        async with saver:
            await saver.asetup()
            stored = await put(saver)
            await saver.aput_writes(stored, [("log", 1)], "task")
            found = await saver.aget_tuple(config())
            assert found.checkpoint["channel_values"] == {"x": 1}
            assert found.pending_writes == [("task", "log", 1)]
            assert [item async for item in saver.alist(config())] == [found]
            history = await saver.aget_delta_channel_history(config=stored, channels=["log"])
            assert history == {"log": {"writes": []}}
            await saver.adelete_thread("t")
            assert await saver.aget_tuple(config()) is None

    env.run(body, in_loop=True)


# Setup.


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_setup_is_single_flight(env: Env) -> None:
    """For all clones of a saver together: what LangGraph clones at every compile must not prepare the store again."""
    store = env.open()
    savers = [store.saver, store.saver.with_allowlist([("here", "There")]), store.saver.for_tenant("a")]
    with env.commands.count() as sent:
        if store.is_async:
            await asyncio.gather(*(put(savers[n % 3], f"t{n}") for n in range(100)))
        else:
            arguments = (checkpoint(1, {"x": 1}), metadata(), {"x": 2})
            with ThreadPoolExecutor(100) as pool:
                list(pool.map(lambda n: savers[n % 3].put(config(f"t{n}"), *arguments), range(100)))
    names = env.commands.names(sent)
    for collection in ("checkpoints", "writes", "values"):
        assert names.count(f"createIndexes {collection}") == 1
    assert names.count("insert checkpoints") == 100


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_a_failed_setup_is_tried_again(env: Env) -> None:
    store = env.open()
    admin = env.raw.client.admin
    fail = {"failCommands": ["createIndexes"], "errorCode": 8, "namespace": f"{env.database}.docstore_checkpoints"}
    admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=fail)
    try:
        with pytest.raises(StorageError):
            await store.put(config(), checkpoint(1))
        assert await store.get(config()) is None
        await store.put(config(), checkpoint(1))
    finally:
        admin.command("configureFailPoint", "failCommand", mode="off")
    for collection in ("checkpoints", "writes", "values"):
        assert len(env.raw[f"docstore_{collection}"].index_information()) > 1
