"""Metadata filters: what the server decides by digests, and what is judged after decoding."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from support.builders import checkpoint, checkpoint_id, config, ids, metadata
from support.env import Env, scenario
from support.kinds import ON_MONGOD

from docstore_saver.facets import key_digest

VALUES: list[Any] = [
    *(1, 1.0, True, 0, -0.0, False, 2**53 + 1, float(2**53), 2**63 - 1, 0.1, math.inf, -math.inf, math.nan),
    *("1", "", "x", "\ud83d", "nul\x00", None, b"x", [1], [], {"a": 1}, {}, ("x",)),
]


class Text(enum.StrEnum):
    """A str that is not exactly one."""

    X = "x"


@scenario
async def test_every_pair_is_judged_as_in_memory_saver_does(env: Env) -> None:
    """Each value stored once, each asked for once: the same rows."""
    store, memory = env.open(), InMemorySaver()
    stored = [value for value in VALUES if value != "\ud83d"]  # the serializer refuses a lone surrogate
    for n, value in enumerate([*stored, Text.X]):
        new, more = checkpoint(n), metadata(n, item=value)
        await store.put(config(), new, more, {})
        memory.put(config(), new, more, {})
    for value in [*VALUES, Text.X]:
        for key in ("item", "missing"):
            expected = ids(list(memory.list(config(), filter={key: value})))
            assert ids(await store.list(config(), filter={key: value})) == expected, value


@scenario
async def test_more_items_than_are_digested(env: Env) -> None:
    store = env.open()
    await store.put(config(), checkpoint(0), metadata(0, **{f"key-{n}": n for n in range(300)}))
    assert env.raw["docstore_checkpoints"].find_one()["facets_by"] == "none"
    assert len(await store.list(None, filter={"key-7": 7})) == 1
    assert await store.list(None, filter={"key-7": 8}) == []


@scenario
async def test_an_index_may_come_later(env: Env) -> None:
    """Rows of a saver that did not index the key are found too."""
    for n, options in enumerate([{}, {"indexed_metadata": ["user"]}, {}]):
        store = env.open(**options)
        await store.put(config(f"t{n}"), checkpoint(n), metadata(0, user="u"))
        await store.put(config(f"other{n}"), checkpoint(100 + n), metadata(0, user="v"))
        await store.put(config(f"none{n}"), checkpoint(200 + n), metadata(0))
    for options in ({}, {"indexed_metadata": ["user"]}):
        found = await env.open(**options).list(None, filter={"user": "u"})
        assert ids(found) == [checkpoint_id(2), checkpoint_id(1), checkpoint_id(0)]
        assert len(await env.open(**options).list(None, filter={"user": None})) == 3


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_an_indexed_filter_reads_what_it_returns(env: Env) -> None:
    store = env.open(indexed_metadata=["user"])
    for n in range(60):
        await store.put(config(f"t{n}"), checkpoint(n), metadata(0, user=f"u{n % 20}"))
    with env.commands.count() as sent:
        assert len(await store.list(None, filter={"user": "u3"})) == 3
    find = next(body for name, body in sent if name == "find" and body["find"] == "docstore_checkpoints")
    command = {key: value for key, value in find.items() if key in ("find", "filter", "sort", "limit")}
    stats = env.raw.command("explain", command, verbosity="executionStats")["executionStats"]
    assert stats["totalDocsExamined"] <= 3
    names = [index["name"] for index in env.raw["docstore_checkpoints"].list_indexes()]
    assert f"facet_{key_digest('user')}" in names
