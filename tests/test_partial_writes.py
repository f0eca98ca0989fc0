"""A call of put_writes that was cut short: the task runs again instead of losing what was not written."""

from __future__ import annotations

import operator
import time
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from support.builders import checkpoint, config, metadata
from support.env import Env, scenario
from support.kinds import ON_MONGOD
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    other: str


@scenario
async def test_a_task_with_missing_writes_is_as_not_run(env: Env) -> None:
    store = env.open()
    at = await store.put(config(), checkpoint(0), metadata())
    await store.put_writes(at, [("a", 1), ("__interrupt__", "?"), ("b", 2), ("c", 3)], "short")
    await store.put_writes(at, [("a", 1), ("b", 2)], "whole")
    env.raw["docstore_writes"].delete_one({"task_id": "short", "idx": 2})
    expected = [("short", "__interrupt__", "?"), ("whole", "a", 1), ("whole", "b", 2)]
    assert (await store.get(at)).pending_writes == expected
    assert (await store.list(config()))[0].pending_writes == expected
    await store.put_writes(at, [("a", 9), ("__interrupt__", "?"), ("b", 2), ("c", 9)], "short")
    found = [write for write in (await store.get(at)).pending_writes if write[0] == "short"]
    assert found == [("short", "__interrupt__", "?"), ("short", "a", 1), ("short", "b", 2), ("short", "c", 3)]


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_a_graph_runs_such_a_task_again(env: Env) -> None:
    """Two parallel nodes, one of which fails; of the other's writes one is lost, as by a crash of the server."""
    runs = {"good": 0, "bad": 0}
    writes = env.raw["docstore_writes"]

    def good(_: State) -> Any:
        runs["good"] += 1
        return {"log": ["good"], "other": "good"}

    def bad(_: State) -> Any:
        runs["bad"] += 1
        if runs["bad"] == 1:
            deadline = time.monotonic() + 20
            while not writes.count_documents({"channel": "other"}) and time.monotonic() < deadline:
                time.sleep(0.02)
            raise RuntimeError("the process dies")
        return {"log": ["bad"]}

    builder = StateGraph(State)
    for name, node in (("good", good), ("bad", bad)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    store = env.open()
    graph = builder.compile(checkpointer=store.saver)
    with pytest.raises(RuntimeError, match="the process dies"):
        await store.invoke(graph, {"log": []}, config(), durability="sync")
    assert writes.delete_one({"channel": "other"}).deleted_count == 1
    state = await store.invoke(graph, None, config())
    assert sorted(state["log"]) == ["bad", "good"]
    assert state["other"] == "good"
    assert runs == {"good": 2, "bad": 2}
