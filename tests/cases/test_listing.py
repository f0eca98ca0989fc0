"""Public bug reports about list(): what it answers, in which order, and what bounds it."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import chain, checkpoint, checkpoint_id, config, ids, metadata, threads, whole_thread, written
from support.env import Env, scenario
from support.stores import Store


def newest_first(*numbers: int) -> list[str]:
    return [checkpoint_id(n) for n in numbers]


@scenario
async def test_a_limit_of_zero_is_no_checkpoint(env: Env) -> None:
    """limit=0 answers nothing and is not read as "no limit", which is None (langgraph #8656, #7310)."""
    store = env.open()
    await chain(store, 5)
    for where in (config(), whole_thread(), None):
        assert await store.list(where, limit=0) == []
        assert ids(await store.list(where, limit=1)) == newest_first(4)
        assert ids(await store.list(where, limit=3)) == newest_first(4, 3, 2)
        assert len(await store.list(where, limit=50)) == 5
        assert len(await store.list(where, limit=None)) == 5
    assert await store.list(config(), limit=0, filter={"source": "loop"}) == []


@scenario
async def test_a_list_in_a_filter_is_compared_whole(env: Env) -> None:
    """A filter whose value is a list finds the equal list, not one that holds or begins it (langchain-oracle #293)."""
    store = env.open()
    for n, labels in enumerate([["red", "blue"], ["blue"], ["blue", "red"], ["red", "blue", "green"], "red"]):
        await store.put(config(f"t{n}"), checkpoint(n), metadata(labels=labels))
    assert threads(await store.list(None, filter={"labels": ["red", "blue"]})) == ["t0"]
    assert threads(await store.list(None, filter={"labels": ["blue"]})) == ["t1"]
    assert await store.list(None, filter={"labels": []}) == []


async def three_threads(store: Store) -> None:
    rows: dict[str, Any] = {
        "draft": {"source": "input", "step": -1, "parents": {}, "score": None},
        "chat": {"source": "loop", "step": 4, "parents": {}, "score": 7},
        "final": {"source": "loop", "step": 9, "parents": {"": "root-id"}, "score": 0.25},
    }
    for n, (thread, told) in enumerate(rows.items()):
        await store.put(config(thread), checkpoint(n), told)


@pytest.mark.parametrize("indexed", [[], ["step", "score"]])
@scenario
async def test_filters_combine(env: Env, indexed: list[str]) -> None:
    """All keys of a filter must agree, whatever the kinds of their values; {} is no filter (langgraphjs #581)."""
    store = env.open(indexed_metadata=indexed)
    await three_threads(store)
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["final", "chat", "draft"]),
        ({"source": "loop"}, ["final", "chat"]),
        ({"source": "loop", "step": 9}, ["final"]),
        ({"source": "input", "step": 9}, []),
        ({"step": -1}, ["draft"]),
        ({"score": None}, ["draft"]),
        ({"score": 7}, ["chat"]),
        ({"score": 0.25}, ["final"]),
        ({"score": 0.25, "source": "loop", "step": 9}, ["final"]),
        ({"parents": {"": "root-id"}}, ["final"]),
        ({"parents": {}, "source": "loop"}, ["chat"]),
    ]
    for asked, found in expected:
        assert threads(await store.list(None, filter=asked)) == found, asked
    assert await store.list(config("draft"), filter={"source": "loop"}) == []
    assert threads(await store.list(config("chat"), filter={"source": "loop"})) == ["chat"]


@scenario
async def test_any_metadata_key_can_be_filtered(env: Env) -> None:
    """Keys of the application's own work as LangGraph's do; an unknown one finds nothing (langgraphjs #2504, #1591)."""
    store = env.open(indexed_metadata=["stage"])
    for n, customer in enumerate(["acorn", "birch", "acorn"]):
        await store.put(config(f"t{n}"), checkpoint(n), metadata(customer=customer, stage="live"))
    assert threads(await store.list(None, filter={"customer": "acorn"})) == ["t2", "t0"]
    assert threads(await store.list(None, filter={"customer": "birch", "stage": "live"})) == ["t1"]
    assert threads(await store.list(None, filter={"customer": "acorn"}, limit=1)) == ["t2"]
    for nothing in ({"customer": "acorn", "stage": "test"}, {"customers": "acorn"}, {"customer": "ACORN"}):
        assert await store.list(None, filter=nothing) == []


@scenario
async def test_without_a_config_every_thread_is_listed(env: Env) -> None:
    """list(None) answers all threads with all their namespaces, newest first (langchain-ai/docs #5545)."""
    store = env.open()
    await chain(store, 3, "one")
    await chain(store, 2, "two", first=30)
    await chain(store, 2, "two", "inner:7", first=60)
    found = await env.open().list(None)
    assert ids(found) == newest_first(61, 60, 31, 30, 2, 1, 0)
    assert threads(found) == ["two"] * 4 + ["one"] * 3
    assert {item.config["configurable"]["checkpoint_ns"] for item in found} == {"", "inner:7"}


@scenario
async def test_a_listed_checkpoint_is_the_one_that_get_answers(env: Env) -> None:
    """list carries the pending writes of each checkpoint, as get_tuple does (langgraphjs #589, #2260)."""
    store = env.open(inline_limit=64)
    for n, at in enumerate(await chain(store, 4)):
        await store.put_writes(at, [("x", n), ("big", "b" * 200)], f"task {n}", "~pull, 1")
        await store.put_writes(at, [("__interrupt__", [f"question {n}"])], f"a-task {n}", "~pull, 2")
    found = await store.list(config())
    assert len(found) == 4
    for n, item in zip((3, 2, 1, 0), found, strict=True):
        assert written(item) == [n, "b" * 200, [f"question {n}"]]
        assert item == await store.get(item.config)


@scenario
async def test_the_head_is_the_greatest_id_in_whatever_order_they_came(env: Env) -> None:
    """Newest id first, and an older one that comes late is no head (langgraph-redis #106, langgraph #8810, #775)."""
    store = env.open()
    for n in (7, 2, 11, 4, 0):
        await store.put(config(), checkpoint(n, {"x": n}), metadata(n))
    for reader in (store, env.open()):
        assert ids(await reader.list(config())) == newest_first(11, 7, 4, 2, 0)
        assert ids(await reader.list(config(), limit=2)) == newest_first(11, 7)
        assert (await reader.get(config())).checkpoint["channel_values"] == {"x": 11}


@scenario
async def test_before_leaves_its_own_checkpoint_out(env: Env) -> None:
    """before is exclusive, and combines with a limit and a filter (langgraph-checkpoint-dynamodb #9)."""
    store = env.open()
    stored = await chain(store, 6)
    for where in (config(), whole_thread(), None):
        assert ids(await store.list(where, before=stored[4])) == newest_first(3, 2, 1, 0)
        assert ids(await store.list(where, before=stored[4], limit=2)) == newest_first(3, 2)
        assert ids(await store.list(where, before=stored[4], filter={"step": 1})) == newest_first(1)
        assert await store.list(where, before=stored[4], filter={"step": 4}) == []
        assert await store.list(where, before=stored[0]) == []


@scenario
async def test_before_without_a_checkpoint_id_is_no_bound(env: Env) -> None:
    """A before that names only a thread neither fails nor hides everything (BetterDB-inc/monitor #105)."""
    store = env.open()
    await chain(store, 4)
    for before in (whole_thread(), config(), {"configurable": {}}, {"configurable": {"checkpoint_id": None}}):
        assert ids(await store.list(config(), before=before)) == newest_first(3, 2, 1, 0)
        assert ids(await store.list(config(), before=before, limit=1)) == newest_first(3)


@scenario
async def test_a_config_with_a_checkpoint_id_lists_that_checkpoint(env: Env) -> None:
    """Thread, namespace and checkpoint id of a config each narrow the list (langgraphjs #580)."""
    store = env.open()
    stored = await chain(store, 5)
    await store.put(config("other"), checkpoint(2), metadata())
    assert ids(await store.list(stored[2])) == newest_first(2)
    assert threads(await store.list(stored[2])) == ["t"]
    assert ids(await store.list(stored[2], limit=3, filter={"step": 2})) == newest_first(2)
    assert await store.list(stored[2], filter={"step": 3}) == []
    assert await store.list(config("other", id=checkpoint_id(3))) == []
    assert await store.list(config("t", "inner:7", checkpoint_id(2))) == []


@scenario
async def test_the_root_namespace_is_a_namespace(env: Env) -> None:
    """A checkpoint_ns of "" means the root alone; only without one all are listed (langgraphjs #582)."""
    store = env.open()
    await chain(store, 2)
    await chain(store, 3, ns="agent:1", first=10)
    await chain(store, 2, ns="agent:1|tool:2", first=20)
    assert ids(await store.list(config())) == newest_first(1, 0)
    assert ids(await store.list(config(ns="agent:1"))) == newest_first(12, 11, 10)
    assert ids(await store.list(config(ns="agent:1|tool:2"))) == newest_first(21, 20)
    assert await store.list(config(ns="agent")) == []
    assert ids(await store.list(whole_thread())) == newest_first(21, 20, 12, 11, 10, 1, 0)
    for root in (config(), whole_thread()):
        assert (await store.get(root)).config == config(id=checkpoint_id(1))
