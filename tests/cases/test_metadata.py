"""Public bug reports about metadata: what reaches it, what it may hold, and what a filter on it may not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from support.builders import checkpoint, config, metadata, pipeline, threads, whole_thread
from support.env import Env, scenario


@dataclass
class Price:
    """A type of the application's."""

    amount: int
    rate: float


@scenario
async def test_keys_of_the_config_reach_the_metadata(env: Env) -> None:
    """What an application puts into configurable is kept and filterable (langchain-mongodb #191, langgraph #5920)."""
    store = env.open()
    own = {"assistant_id": "helper", "user_id": "u-17", "beta": False, "weight": 0.125, "tries": 3}
    graph = pipeline(store, only=lambda state: {"count": state["count"] + 1})
    for thread, more in (("ours", own), ("theirs", {**own, "user_id": "u-18"})):
        where = whole_thread(thread)
        where["configurable"].update(more)
        await store.invoke(graph, {"count": 1}, where)
    listed = await store.list(config("ours"))
    assert len(listed) == 3
    for item in listed:
        assert {name: item.metadata[name] for name in own} == own
        assert type(item.metadata["beta"]) is bool
    assert threads(await store.list(None, filter={"user_id": "u-17"})) == ["ours"] * 3
    assert len(await store.list(None, filter={"weight": 0.125, "beta": False, "tries": 3})) == 6
    assert await store.list(None, filter={"user_id": "u-17", "beta": True}) == []


@scenario
async def test_metadata_may_hold_messages_and_types_of_the_application(env: Env) -> None:
    """Metadata goes through the serializer, so what JSON cannot hold is no error (langgraph #5862, #5511, #8942)."""
    call = {"name": "look_up", "args": {"q": "x"}, "id": "call-1", "type": "tool_call"}
    said = [HumanMessage("hi", id="m1"), AIMessage("", id="m2", tool_calls=[call]), ToolMessage("x", tool_call_id="1")]
    told = metadata(3, writes={"agent": {"messages": said}}, price=Price(12, 0.5))
    store = env.open()
    await store.put(config(), checkpoint(0), told)
    for found in (await store.get(config()), (await env.open().list(None))[0]):
        assert found.metadata["writes"] == {"agent": {"messages": said}}
        assert [type(message) for message in found.metadata["writes"]["agent"]["messages"]] == [type(m) for m in said]
        assert found.metadata["price"] == Price(12, 0.5)
        assert found.metadata["step"] == 3


@scenario
async def test_metadata_is_kept_whole(env: Env) -> None:
    """Unknown keys, empty containers, None and the counters of delta channels are all kept (langgraph #7736)."""
    told = {
        "source": "fork",
        "step": 21,
        "parents": {"": "root-id", "agent|tool:2": "inner-id"},
        "run_id": "run-5",
        "future": {"deep": [{"list": [0, {"none": None}]}], "empty": [[]]},
        "no_items": {},
        "no_values": [],
        "yes": True,
        "one": 1,
        "nothing": None,
    }
    counters = {"counters_since_delta_snapshot": {"messages": (4, 11), "log": (0, 1)}}
    store = env.open(indexed_metadata=["future", "one"])
    await store.put(config(), checkpoint(0), {**told, **counters})
    for found in ((await store.get(config())).metadata, (await env.open().list(config()))[0].metadata):
        kept = {name: tuple(pair) for name, pair in found.pop("counters_since_delta_snapshot").items()}
        assert kept == counters["counters_since_delta_snapshot"]
        assert found == told
        assert {name: type(value) for name, value in found.items()} == {name: type(told[name]) for name in told}


SMUGGLED: list[Any] = [
    {"$ne": ""},
    {"$gt": ""},
    {"$regex": ".*"},
    {"$exists": True},
    {"$in": ["ann", "bill"]},
    {"$not": {"$eq": ""}},
]


@pytest.mark.parametrize("indexed", [[], ["user", "$where", "$or"]])
@scenario
async def test_an_operator_in_a_filter_is_a_value_like_any_other(env: Env, indexed: list[str]) -> None:
    """A filter never widens: an operator finds only metadata that holds it literally (langchain-mongodb #384)."""
    store = env.open(indexed_metadata=indexed)
    for n, user in enumerate(["ann", "bill"]):
        await store.put(config(user), checkpoint(n), metadata(user=user))
    for operator in SMUGGLED:
        assert await store.list(None, filter={"user": operator}) == [], operator
        assert await store.list(config("ann"), filter={"user": operator}) == [], operator
    for key, value in (("$where", "true"), ("$or", [{"user": "ann"}]), ("$expr", True), ("user.0", "a")):
        assert await store.list(None, filter={key: value}) == [], key
    for n, operator in enumerate(SMUGGLED):
        await store.put(config(f"literal {n}"), checkpoint(10 + n), metadata(user=operator))
        assert threads(await store.list(None, filter={"user": operator})) == [f"literal {n}"]
