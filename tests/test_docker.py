"""The compose files, as far as they can be tested without a container engine: docker/README.md says what that leaves.

The mongods below get the files' own arguments and the files' own `rs.initiate` documents, on free ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
import yaml

from docstore_saver.devserver import find_binary

DOCKER = Path(__file__).parent.parent / "docker"
FILES = {"compose.yml": [27017], "compose.replica-set.yml": [27017, 27018, 27019]}
INITIATE = re.compile(r"rs\.initiate\((\{.*\})\);", re.DOTALL)

each_file = pytest.mark.parametrize("name", FILES)


def compose(name: str) -> dict[str, Any]:
    return yaml.safe_load((DOCKER / name).read_text())


def mongods(name: str) -> list[dict[str, Any]]:
    return [service for service in compose(name)["services"].values() if service["command"][0] == "mongod"]


def port_of(service: dict[str, Any]) -> int:
    command = service["command"]
    return int(command[command.index("--port") + 1]) if "--port" in command else 27017


def documents(name: str) -> list[dict[str, Any]]:
    found = (INITIATE.search(service["healthcheck"]["test"][-1]) for service in mongods(name))
    return [json.loads(match[1]) for match in found if match]


def uri_of(name: str) -> str:
    found = re.search(r"^#\s+(mongodb://\S+)$", (DOCKER / name).read_text(), re.MULTILINE)
    assert found
    return found[1]


@each_file
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    published = [port for service in compose(name)["services"].values() for port in service.get("ports", [])]
    assert published == [f"127.0.0.1:{port}:{port}" for port in FILES[name]]


@each_file
def test_every_node_keeps_its_data_and_has_a_healthcheck(name: str) -> None:
    nodes = mongods(name)
    assert [port_of(node) for node in nodes] == FILES[name]
    volumes = [volume for node in nodes for volume in node["volumes"]]
    assert [volume.partition(":")[0] for volume in volumes] == list(compose(name)["volumes"])
    assert all(volume.endswith(":/data/db") for volume in volumes)
    for node in nodes:
        assert node["command"][1:3] == ["--replSet", "rs0"]
        shell = ["CMD", "mongosh", "--quiet", *([f"--port={port_of(node)}"] if len(nodes) > 1 else []), "--eval"]
        assert node["healthcheck"]["test"][:-1] == shell
        assert "quit(db.hello()." in node["healthcheck"]["test"][-1]


@each_file
def test_one_node_initiates_the_set_with_all_members(name: str) -> None:
    (document,) = documents(name)
    assert document["_id"] == "rs0"
    assert [member["host"] for member in document["members"]] == [f"127.0.0.1:{port}" for port in FILES[name]]
    assert pymongo.uri_parser.parse_uri(uri_of(name))["nodelist"] == [("127.0.0.1", port) for port in FILES[name]]


@each_file
def test_readme_shows_the_connection_strings(name: str) -> None:
    assert f"`{uri_of(name)}`" in (DOCKER / "README.md").read_text()


@pytest.mark.skipif("DOCSTORE_TEST_URI" in os.environ, reason="needs mongods of its own; the run has a given server")
@each_file
def test_set_forms(name: str, tmp_path: Path) -> None:
    free = dict(zip(FILES[name], free_ports(len(FILES[name])), strict=True))
    with contextlib.ExitStack() as running:
        for node in mongods(name):
            running.enter_context(mongod(node["command"], free[port_of(node)], tmp_path / str(port_of(node))))
        (document,) = documents(name)
        with pymongo.MongoClient[Any]("127.0.0.1", free[27017], directConnection=True) as first:
            first.admin.command("replSetInitiate", json.loads(moved(json.dumps(document), free)))
        with pymongo.MongoClient[Any](moved(uri_of(name), free), heartbeatFrequencyMS=500) as client:
            together = client["test"].get_collection("c", write_concern=pymongo.WriteConcern(w=len(free)))
            together.insert_one({})
            assert {port for _, port in client.nodes} == set(free.values())


def moved(text: str, ports: dict[int, int]) -> str:
    return re.sub(r"127\.0\.0\.1:(\d+)", lambda match: f"127.0.0.1:{ports[int(match[1])]}", text)


@contextlib.contextmanager
def mongod(command: list[str], port: int, data: Path) -> Iterator[None]:
    data.mkdir()
    arguments = [argument for argument in command[1:] if argument != "--bind_ip_all"]
    if "--port" in arguments:
        arguments[arguments.index("--port") + 1] = str(port)
    else:
        arguments += ["--port", str(port)]
    arguments += ["--bind_ip", "127.0.0.1", "--dbpath", str(data), "--wiredTigerCacheSizeGB", "0.25", "--nounixsocket"]
    with subprocess.Popen([find_binary(), *arguments], stdout=subprocess.DEVNULL) as process:  # our binary
        try:
            wait_for(port)
            yield
        finally:
            # Asked politely, a node first looks for a successor; nobody needs this one's data any more.
            process.kill()
    shutil.rmtree(data)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    pytest.fail("mongod did not listen within a minute")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in sockets]
