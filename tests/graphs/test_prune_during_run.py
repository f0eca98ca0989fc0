"""A run that goes on from an old checkpoint with exit durability while its branch is pruned.

Such a run reads its ancestors at the start and stores its next checkpoint at the end. A prune in between that kept only
the head's chain would leave it without the writes that its delta channel is rebuilt from.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from support.builders import config
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, MONGOMOCK, PYMONGO
from support.stores import Store

from docstore_saver.documents import now
from docstore_saver.errors import IncompleteCheckpointError

pytestmark = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, MONGOMOCK)


def gather(value: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*value, *(item for write in writes for item in write)]


class Log(TypedDict):
    log: Annotated[list[Any], DeltaChannel(gather, snapshot_frequency=50)]


def talk(store: Store, cleaner: Store | None = None, **options: Any) -> Any:
    """A graph of one node; with a `cleaner` the node prunes its own thread while it runs."""

    async def prune_and_answer(_: Log) -> Any:
        if cleaner is not None:
            assert (await cleaner.call("prune", ["t"], **options)).hidden
        return {"log": ["answer"]}

    def answer(state: Log) -> Any:
        step = prune_and_answer(state)
        try:
            step.send(None)
        except StopIteration as stop:
            return stop.value
        raise AssertionError("a sync saver suspended")

    builder = StateGraph(Log)
    builder.add_node("answer", prune_and_answer if store.is_async else answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=store.saver)


async def pruned_run(env: Env, grace: timedelta) -> tuple[Any, Any]:
    """Go on at the tip of an older branch, and be pruned meanwhile; answers the store and what the run ended with.

    LangGraph stores a snapshot where a run begins at a checkpoint that has a child already; a tip has none.
    """
    store = env.open()
    for turn in range(3):
        await store.invoke(talk(store), {"log": [turn]}, config())
    history = await store.state_history(talk(store), config())
    tip, earlier = (next(state for state in history if state.values.get("log") == log(n)) for n in (3, 2))
    await store.invoke(talk(store), {"log": ["another"]}, earlier.config)
    graph = talk(store, env.open(), grace=grace)
    result = await store.invoke(graph, {"log": ["more"]}, tip.config, durability="exit")
    assert result["log"] == [*log(3), "more", "answer"]
    return store, result


def log(turns: int) -> list[Any]:
    return [item for turn in range(turns) for item in (turn, "answer")]


@scenario
async def test_with_grace_it_keeps_everything(env: Env) -> None:
    """Also when all that was hidden is swept later."""
    store, result = await pruned_run(env, timedelta(hours=1))
    assert (await store.state(talk(store), config())).values == result
    long_ago = now() - timedelta(hours=3)
    env.raw["docstore_checkpoints"].update_many({"hidden_at": {"$ne": None}}, {"$set": {"hidden_at": long_ago}})
    swept = await store.call("sweep")
    assert swept.lineage
    reader = env.open()
    assert (await reader.state(talk(reader), config())).values == result
    assert (await reader.call("check")).findings == ()


@scenario
async def test_without_grace_it_is_whole_or_told(env: Env) -> None:
    """Whoever prunes without grace beside a run may break it; that would be an error, never a shorter state.

    LangGraph 1.2 stores a snapshot where it goes on from a given checkpoint, so here nothing is lost at all; the races
    of `test_retention_races` have the runs that store none.
    """
    store, result = await pruned_run(env, timedelta(0))
    for reader in (store, env.open()):
        try:
            found = (await reader.state(talk(reader), config())).values
        except IncompleteCheckpointError:
            found = result
        assert found == result
    assert env.raw["docstore_checkpoints"].count_documents({"hidden_at": None}) == 2
