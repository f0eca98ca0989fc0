"""Servers, clients and savers for every test.

One mongod serves the whole run (one for each xdist worker); each test has a database of its own. Everything that a test
starts is ended by the handle that started it. `DOCSTORE_TEST_URI` names another server to test on.
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from support.env import Env
from support.kinds import KINDS, Kind

from docstore_saver.devserver import DevServer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`env` runs on all five clients; a `kinds` mark narrows that."""
    if "env" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("kinds")
        kinds = list(mark.args) if mark else KINDS
        metafunc.parametrize("env", kinds, ids=lambda kind: kind.name, indirect=True)


def pytest_configure() -> None:
    """A run that is told to end must still stop its servers."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def mongod_uri() -> Iterator[str]:
    """A real server. None here is a failure, never a skip."""
    given = os.environ.get("DOCSTORE_TEST_URI")
    if given:
        yield given
        return
    with DevServer(arguments=["--setParameter", "enableTestCommands=1"]) as server:
        yield server.uri


@pytest.fixture(scope="session")
def raw_client(mongod_uri: str) -> Iterator[pymongo.MongoClient[Any]]:
    """A client to look at the server from outside."""
    with pymongo.MongoClient[Any](mongod_uri) as client:
        yield client


@pytest.fixture
def env(request: pytest.FixtureRequest) -> Iterator[Env]:
    kind: Kind = request.param
    database = f"docstore_test_{uuid.uuid4().hex[:16]}"
    if not kind.needs_server:
        yield Env(kind, database, "", None)
        return
    client = request.getfixturevalue("raw_client")
    yield Env(kind, database, request.getfixturevalue("mongod_uri"), client)
    client.drop_database(database)
