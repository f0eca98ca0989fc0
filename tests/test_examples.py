"""The examples, run as their users run them; the demo in processes of its own, which really end."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymongo
import pytest
from langgraph.types import StateSnapshot

from examples.demo.tree import tree_lines

ROOT = Path(__file__).parent.parent
DEMO = [sys.executable, "-m", "examples.demo"]
TREE = """\
    step -1  next: __start__  (the question)
    step  0  next: assistant
    step  1  next: tools
    step  2  next: check_history, check_policy
    step  3  next: approval
    ├─ step  4  next: answer
    │  step  5  end: Good news: your 40 EUR are on their way.
    └─ step  4  next: approval  (the fork)
       step  5  next: answer
       step  6  end: I am sorry, I cannot refund this order. Shall I send a new one?
"""

own_mongod = pytest.mark.skipif(
    "DOCSTORE_TEST_URI" in os.environ, reason="needs a mongod of its own; the run has a given server"
)


def run(*arguments: str, **environment: str) -> str:
    """Run a program to its end, with warnings as errors; answer what it printed."""
    ended = subprocess.run(  # our own programs
        arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONUTF8": "1", **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def database() -> str:
    return f"docstore_test_{uuid.uuid4().hex[:16]}"


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A folder for a mongod's data, which is too large to stay."""
    yield tmp_path / "data"
    shutil.rmtree(tmp_path / "data", ignore_errors=True)


def is_at_rest(data: Path) -> bool:
    """Did the mongod of this folder end, and cleanly? It empties its lock file then."""
    return (data / "mongod.lock").read_bytes() == b""


def test_demo_on_the_embedded_store_where_no_mongod_runs(data: Path) -> None:
    printed = run(*DEMO, "--data", str(data), DOCSTORE_MONGOD=str(data / "nowhere"))
    assert printed.count("waits  Refund 40 EUR for order 1042?") == 3
    assert TREE in printed
    assert "Left out, as no mongod runs here: No mongod is installed." in printed.splitlines()[-1]
    assert not data.exists()


@own_mongod
def test_demo_goes_on_in_new_processes(data: Path) -> None:
    started = run(*DEMO, "start", "--data", str(data))
    assert "check  history: no refund in 2 years\n    check  policy:" in started
    assert "    waits  Refund 40 EUR for order 1042?\n  -- process" in started
    assert "human  yes" not in started
    assert is_at_rest(data)
    finished = run(*DEMO, "finish", "--data", str(data))
    assert "waits  Refund 40 EUR for order 1042?\n    human  yes\n    ai     Good news" in finished
    assert "then   3 messages, no decision, next: approval" in finished
    assert TREE in finished
    assert is_at_rest(data)


def test_demo_on_a_given_server(mongod_uri: str, raw_client: pymongo.MongoClient[Any], database: str) -> None:
    try:
        for command in ("start", "finish"):
            printed = run(*DEMO, command, "--uri", mongod_uri, "--database", database)
        assert TREE in printed
        assert all(raw_client[database][name].count_documents({}) == 0 for name in collections(raw_client[database]))
    finally:
        raw_client.drop_database(database)


def collections(database: Any) -> list[str]:
    found = database.list_collection_names()
    assert "docstore_checkpoints" in found
    return found


@own_mongod
def test_demo_that_is_ended_takes_its_server_along(data: Path) -> None:
    command = [*DEMO, "start", "--data", str(data)]
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=unbuffered) as demo:  # as above
        assert demo.stdout
        assert b"starts" in demo.stdout.readline()
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=60)
    assert demo.returncode == 128 + signal.SIGTERM
    assert is_at_rest(data)


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "anna: Me again.\n  -> I have heard 2 of your messages in this thread.\n9 checkpoints are stored." in printed


def async_agent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["async_agent.py", *arguments])
    runpy.run_path(str(ROOT / "examples" / "async_agent.py"), run_name="__main__")
    return capsys.readouterr().out


def test_async_agent_goes_on_with_its_thread(
    mongod_uri: str,
    raw_client: pymongo.MongoClient[Any],
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MONGODB_URI", with_database(mongod_uri, database))
    try:
        for heard in (2, 4):
            printed = async_agent(monkeypatch, capsys)
            assert f"Me again.\n  -> I have heard {heard} of your messages" in printed
    finally:
        raw_client.drop_database(database)


def with_database(uri: str, database: str) -> str:
    """A connection string that names this database."""
    parts = urlsplit(uri)
    return parts._replace(path=f"/{database}").geturl()


def test_async_agent_on_the_embedded_store(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    printed = async_agent(monkeypatch, capsys, "memory://")
    assert "Me again.\n  -> I have heard 2 of your messages" in printed


def test_tree_shows_every_fork_and_loses_nothing() -> None:
    parents = {"a": None, "b": "a", "c": "b", "d": "b", "e": "d", "f": "d", "g": "a", "z": "pruned", "zz": "z"}
    lines = tree_lines([snapshot(*pair) for pair in parents.items()], lambda item: item.values["id"])
    assert lines == ["a", "├─ b", "│  ├─ c", "│  └─ d", "│     ├─ e", "│     └─ f", "└─ g", "z", "zz"]


def snapshot(id: str, parent: str | None) -> StateSnapshot:
    config, above = ({"configurable": {"checkpoint_id": value}} if value else None for value in (id, parent))
    return StateSnapshot({"id": id}, (), config, None, None, above, (), ())
