"""The development server: keeps its data, ends with its handle, says what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pymongo
import pytest

from docstore_saver import devserver
from docstore_saver.devserver import BINARY_VARIABLE, DevServer
from docstore_saver.errors import ConfigurationError, UnavailableError


def test_data_survives_a_restart_on_another_port(tmp_path: Path) -> None:
    """Also in a folder with a long name: no unix socket, whose path would have a limit."""
    folder = tmp_path / ("long" * 30) / "data"
    ports = []
    for expected in (0, 1):
        with DevServer(folder) as server:
            ports.append(server.port)
            with pymongo.MongoClient[Any](server.uri) as client:
                assert client["db"]["rows"].count_documents({}) == expected
                client["db"]["rows"].insert_one({})
    assert folder.exists()
    assert ports[0] != ports[1]


def test_a_temporary_server_leaves_nothing() -> None:
    with DevServer() as server:
        folder, process = server.log.parent, server._process
        assert process is not None
    assert process.poll() is not None
    assert not folder.exists()


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="mongod ended while starting"):
        DevServer(tmp_path, arguments=["--replSet", "docstore", "--nonsense"]).start()


def test_no_mongod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BINARY_VARIABLE, raising=False)
    monkeypatch.setattr(devserver, "_wheel_binary", lambda: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match=r"\[devserver\].*libcurl4"):
        DevServer().start()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho 'libcurl.so.4: cannot open shared object file' >&2; exit 127", "apt-get install libcurl4"),
        ("#!/bin/sh\nexit 3", "status 3"),
        ("not a program", "does not run here"),
    ],
)
def test_a_mongod_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, said: str) -> None:
    binary = tmp_path / "mongod"
    binary.write_text(script)
    binary.chmod(0o755)
    monkeypatch.setenv(BINARY_VARIABLE, str(binary))
    with pytest.raises(ConfigurationError, match=said):
        DevServer().start()


def test_the_program_ends_its_server(tmp_path: Path) -> None:
    port = devserver._free_port()
    command = [sys.executable, "-m", "docstore_saver.devserver", "--data", str(tmp_path / "d"), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert f"127.0.0.1:{port}" in program.stdout.readline()
        with pymongo.MongoClient[Any](f"mongodb://127.0.0.1:{port}/?directConnection=true") as client:
            server = client.admin.command("serverStatus")["pid"]
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=30) == 0
    assert not _is_running(server)


def _is_running(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True
