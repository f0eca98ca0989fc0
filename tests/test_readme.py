"""What the README says is run, or compared with the code."""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymongo
import pytest

from docstore_saver.base import SaverBase

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def database_uri(mongod_uri: str, raw_client: pymongo.MongoClient[Any]) -> Iterator[str]:
    """A connection string with a database of the test's own."""
    name = f"docstore_test_{uuid.uuid4().hex[:16]}"
    yield urlsplit(mongod_uri)._replace(path=f"/{name}").geturl()
    raw_client.drop_database(name)


def test_python_blocks_run(database_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, as a reader would paste them."""
    monkeypatch.setenv("MONGODB_URI", database_uri)
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "sixteen bytes ok")
    pasted: dict[str, Any] = {"__name__": "__main__"}
    blocks = list(BLOCK.finditer(README))
    assert len(blocks) == README.count("```python")
    for block in blocks:
        lines_above = README.count("\n", 0, block.start(1))
        # With the empty lines a traceback names the README's own line.
        exec(compile("\n" * lines_above + block[1], ROOT / "README.md", "exec"), pasted)  # noqa: S102  # our own text


def test_options_are_all_in_the_table() -> None:
    section = README.partition("## Options")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    parameters = inspect.signature(SaverBase.__init__).parameters
    assert documented == [name for name in parameters if name not in ("self", "client", "unknown")]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docker/README.md"])
def test_commands_and_files_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)?)\b(?= *(?:#|`|$))", text, re.MULTILINE)) <= targets
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    files = re.findall(r"`((?:examples|docs|docker|tests)/[\w./-]+)`", text)
    assert [path for path in [*links, *files] if not (ROOT / path).exists()] == []
