"""Threads that outlive their process: interrupted in one and resumed in another, killed in the middle of a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymongo
import pytest
from graphs.programs import worker
from langgraph.types import Command
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, PYMONGO
from support.stores import Store

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(__file__).parent / "programs"
DONE = ["start", "plan", "fast", "slow"]

on_both_faces = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO)


def process(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A program of this folder, with warnings as errors."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / program), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(running: subprocess.Popen[str]) -> str:
    printed, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    return printed


class Workers:
    """Processes that take turns with one thread; the log says which nodes finished, in any of them."""

    def __init__(self, env: Env, log: Path) -> None:
        self.env, self.log = env, log

    def start(self, command: str, *answer: str, **environment: str) -> subprocess.Popen[str]:
        face = "async" if self.env.kind.is_async else "sync"
        return process("worker.py", face, command, self.env.uri, self.env.database, *answer, **environment)

    def run(self, command: str, *answer: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(outcome(self.start(command, *answer)))
        return state

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def workers(env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workers:
    monkeypatch.setenv("WORKER_LOG", str(tmp_path / "log"))
    return Workers(env, tmp_path / "log")


@on_both_faces
@scenario
async def test_an_interrupt_is_resumed_by_another_process(env: Env, workers: Workers) -> None:
    stopped = workers.run("start")
    assert stopped["__interrupt__"] == [{"question": "go on?", "done": DONE}]
    waiting = await seen_from_outside(env.open())
    assert waiting.next == ("ask",)
    assert waiting.interrupts[0].value == {"question": "go on?", "done": DONE}
    ended = workers.run("resume", "yes")
    assert ended == {"done": [*DONE, "asked: yes", "end"], "payload": 50_000}
    assert (await seen_from_outside(env.open())).values["done"] == ended["done"]
    assert sorted(workers.lines) == sorted(["plan", "fast", "slow", "ask", "end"])


async def seen_from_outside(store: Store) -> Any:
    return await store.state(worker.build(store.saver), worker.CONFIG)


@on_both_faces
@scenario
async def test_a_killed_process_loses_and_doubles_no_finished_step(env: Env, workers: Workers) -> None:
    """SIGKILL comes while `slow` works; `fast`, beside it, has finished. This process goes on."""
    with workers.start("start", WORKER_HANG="slow") as running:
        await killed_when(running, env.open(), lambda state: fast_is_kept(state) and "slow hangs" in workers.lines)
    state = await seen_from_outside(env.open())
    assert [(task.name, task.result) for task in state.tasks] == [("fast", {"done": ["fast"]}), ("slow", None)]
    await resumed_here(env.open(), None)
    ended = await resumed_here(env.open(), Command(resume="yes"))
    assert ended["done"] == [*DONE, "asked: yes", "end"]
    assert sorted(workers.lines) == sorted(["plan", "fast", "slow hangs", "slow", "ask", "end"])


def fast_is_kept(state: Any) -> bool:
    return any(task.name == "fast" and task.result for task in state.tasks)


@on_both_faces
@scenario
async def test_a_process_killed_after_the_answer_keeps_it(env: Env, workers: Workers) -> None:
    store = env.open()
    await store.invoke(worker.build(store.saver), worker.value("start", None), worker.CONFIG)
    with workers.start("resume", "yes", WORKER_HANG="end") as running:
        await killed_when(running, store, lambda state: state.next == ("end",))
    ended = await resumed_here(env.open(), None)
    assert ended["done"] == [*DONE, "asked: yes", "end"]
    assert sorted(workers.lines) == sorted(["plan", "fast", "slow", "ask", "end hangs", "end"])


async def killed_when(running: subprocess.Popen[str], store: Store, ready: Callable[[Any], bool]) -> None:
    """Kill it when the store, and not just the process, knows how far it has come."""
    deadline = time.monotonic() + 60
    try:
        while not ready(await seen_from_outside(store)):
            assert running.poll() is None, running.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)  # noqa: ASYNC251  # nothing else runs on this loop
    finally:
        running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL


async def resumed_here(store: Store, value: Any) -> Any:
    return await store.invoke(worker.build(store.saver), value, worker.CONFIG)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_strict_msgpack_restores_the_states_own_types(
    kind: str, mongod_uri: str, raw_client: pymongo.MongoClient[Any]
) -> None:
    database = f"docstore_test_strict_{kind}_{os.getpid()}"
    try:
        running = process("strict.py", kind, mongod_uri, database, LANGGRAPH_STRICT_MSGPACK="true")
        assert outcome(running) == "all is as it should be"
    finally:
        raw_client.drop_database(database)
