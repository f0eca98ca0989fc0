"""A public bug report about elections. The tests step a primary down, so they have a server of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from support.builders import checkpoint, checkpoint_id, config, ids, metadata, written
from support.env import Env, scenario
from support.kinds import ON_MONGOD

from docstore_saver.devserver import DevServer

pytestmark = pytest.mark.kinds(*ON_MONGOD)
AFTER = 40
"""Steps that the thread must go on for behind the election."""
MOST_STEPS = 5000


@pytest.fixture(scope="module")
def mongod_uri() -> Iterator[str]:
    """A replica set, which a driver searches for its primary as it would in production."""
    with DevServer() as server:
        yield f"mongodb://127.0.0.1:{server.port}/?replicaSet=docstore&heartbeatFrequencyMS=500"


@pytest.fixture(scope="module")
def raw_client(mongod_uri: str) -> Iterator[pymongo.MongoClient[Any]]:
    with pymongo.MongoClient[Any](mongod_uri) as client:
        yield client


def term(env: Env) -> int:
    """Counts the elections."""
    status: dict[str, int] = env.raw.client.admin.command("replSetGetStatus")
    return status["term"]


@scenario
async def test_a_primary_steps_down_while_a_thread_runs(env: Env) -> None:
    """Nothing is lost or doubled by an election in the midst of a run (mongodb/specifications #213, mongoose #2603)."""
    store, elections, admin = env.open(), term(env), env.raw.client.admin
    election = threading.Thread(target=lambda: admin.command("replSetStepDown", 1, force=True))
    at, n, over = config(), 0, 0
    while over < AFTER:
        if n == 20:
            election.start()
        at = await store.put(at, checkpoint(n, {"x": n}), metadata(n))
        await store.put_writes(at, [("x", n), ("y", "each")], "task", "~1")
        n += 1
        assert n < MOST_STEPS, "there was no election"
        over += n > 20 and not election.is_alive() and term(env) > elections
    election.join()
    found = await env.open().list(config())
    assert ids(found) == [checkpoint_id(k) for k in reversed(range(n))]
    assert [item.metadata["step"] for item in found] == list(reversed(range(n)))
    assert [written(item) for item in found] == [[k, "each"] for k in reversed(range(n))]
    assert [item.parent_config and item.parent_config["configurable"]["checkpoint_id"] for item in found] == [
        *(checkpoint_id(k) for k in reversed(range(n - 1))),
        None,
    ]
