"""Run the demo: `make demo`, or `python -m examples.demo` where docstore_saver[demo] is installed.

Without a command it tells the whole story, first on the embedded store, then on a real mongod whose process, like that
of the program, ends in the middle. The commands `start` and `finish` are the two processes of the second part; with
--uri they run on a server of yours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from docstore_saver import AsyncDocStoreSaver
from docstore_saver.devserver import DevServer, find_binary
from docstore_saver.errors import ConfigurationError
from examples.demo.story import from_approval, until_approval

DATA = Path(".demo")
HALVES: dict[str, Callable[[BaseCheckpointSaver[Any]], Awaitable[None]]] = {
    "start": until_approval,
    "finish": from_approval,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("command", nargs="?", choices=["all", *HALVES], default="all")
    parser.add_argument("--data", type=Path, default=DATA, help="folder for mongod's data (default: %(default)s)")
    parser.add_argument("--uri", help="a server of yours, for start and finish")
    parser.add_argument("--database", default="docstore_demo", help="default: %(default)s")
    asked = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The tree's lines are not in every terminal's alphabet.
        sys.stdout.reconfigure(errors="replace")
    if asked.command == "all":
        asyncio.run(on_embedded())
        on_mongod(asked.data)
    else:
        run_half(asked.command, asked.uri, asked.data, asked.database)


async def on_embedded() -> None:
    print("[1/2] On the embedded store: no server, everything in this process's memory.")
    async with AsyncDocStoreSaver.in_memory() as saver:
        for half in HALVES.values():
            await half(saver)


def on_mongod(data: Path) -> None:
    print("\n[2/2] On a real MongoDB: program and server end at the approval, new ones go on from the data on disk.")
    try:
        find_binary()
    except ConfigurationError as error:
        print("  Left out, as no mongod runs here:", " ".join(str(error).split()))
        return
    # What an interrupted demo left behind.
    shutil.rmtree(data, ignore_errors=True)
    try:
        for command in HALVES:
            in_another_process(command, data)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    print("  Nothing is left running, and the data folder is removed.")


def in_another_process(command: str, data: Path) -> None:
    """Run one half; a failure ends the demo with it."""
    sys.stdout.flush()
    arguments = [sys.executable, "-m", "examples.demo", command, "--data", str(data)]
    with subprocess.Popen(arguments) as child:  # noqa: S603  # this program
        try:
            failed = child.wait()
        except BaseException:
            # Ended here: the child must still stop its server.
            child.terminate()
            child.wait()
            raise
    if failed:
        raise SystemExit(f"The demo failed: `{command}` ended with {failed}.")


def run_half(command: str, uri: str | None, data: Path, database: str) -> None:
    with server(uri, data) as address:
        print(f"  -- process {os.getpid()} starts")
        asyncio.run(_run_half(command, address, database))
    print(f"  -- process {os.getpid()} ends{'' if uri else ', its mongod too'}")


@contextlib.contextmanager
def server(uri: str | None, data: Path) -> Iterator[str]:
    """The given server, else a mongod that lives as long as this process and keeps its data."""
    if uri:
        yield uri
    else:
        with DevServer(data) as mongod:
            yield mongod.uri


async def _run_half(command: str, uri: str, database: str) -> None:
    async with AsyncDocStoreSaver.from_conn_string(uri, database=database) as saver:
        await HALVES[command](saver)


def _end(number: int, frame: FrameType | None) -> None:
    """End through all `with` blocks, so that no server stays behind; a second signal must not disturb that."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _let_it_end)
    raise SystemExit(128 + number)


def _let_it_end(number: int, frame: FrameType | None) -> None:
    pass


if __name__ == "__main__":
    main()
