"""Public bug reports about delta channels, which are rebuilt from the writes since their last stored value."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from support.builders import checkpoint, config, metadata
from support.env import Env, scenario
from support.stores import Store

STRATEGIES = ["auto", "graph_lookup", "scan"]


@scenario
async def test_a_plain_value_is_a_seed_with_its_own_writes(env: Env) -> None:
    """The first writes after a channel became a delta channel lie at its last plain value (langgraph #8384, #8526)."""
    store = env.open()
    at = await store.put(config(), checkpoint(0, {"log": ["ancient"]}), metadata())
    await store.put_writes(at, [("log", "part of the seed")], "task 0", "~1")
    at = await store.put(at, checkpoint(1, {"log": ["old", "values"]}), metadata(1))
    await store.put_writes(at, [("log", "at the seed"), ("log", "and again")], "task 1", "~1")
    at = await store.put(at, checkpoint(2, {}, {"log": 3}), metadata(2), {})
    await store.put_writes(at, [("notes", "other"), ("log", "behind it")], "task 2", "~1")
    head = await store.put(at, checkpoint(3, {}, {"log": 4}), metadata(3), {})
    await store.put_writes(head, [("log", "still pending")], "task 3", "~1")
    for reader, where in itertools.product([env.open(delta_strategy=name) for name in STRATEGIES], [head, config()]):
        found = await reader.history(where, ["log", "notes", "unknown"])
        assert found == {
            "log": {
                "seed": ["old", "values"],
                "writes": [
                    ("task 1", "log", "at the seed"),
                    ("task 1", "log", "and again"),
                    ("task 2", "log", "behind it"),
                ],
            },
            "notes": {"writes": [("task 2", "notes", "other")]},
            "unknown": {"writes": []},
        }
        assert await reader.history(where, []) == {}


def join(value: list[str], writes: Sequence[list[str]]) -> list[str]:
    """A reducer that shows every lost, doubled or misplaced write."""
    return [*value, *(word for write in writes for word in write)]


class Diary(TypedDict):
    log: Annotated[list[str], DeltaChannel(join, snapshot_frequency=4)]


def diary(store: Store) -> Any:
    graph = StateGraph(Diary)
    graph.add_node("count", lambda state: {"log": [f"{len(state['log'])} so far"]})
    graph.add_edge(START, "count")
    graph.add_edge("count", END)
    return graph.compile(checkpointer=store.saver)


@scenario
async def test_a_delta_graph_goes_on_in_new_processes_over_its_snapshots(env: Env) -> None:
    """After each restart the state is what the run held, at the head and in the history (langgraph #7634, #7586)."""
    expected: list[str] = []
    for n in range(7):
        store = env.open(delta_strategy=STRATEGIES[n % 3])
        finished = await store.invoke(diary(store), {"log": [f"day {n}"]}, config())
        expected += [f"day {n}", f"{len(expected) + 1} so far"]
        assert finished["log"] == expected
        other = env.open(delta_strategy=STRATEGIES[(n + 1) % 3])
        assert (await other.state(diary(other), config())).values["log"] == expected
    reader = env.open()
    history = await reader.state_history(diary(reader), config())
    lengths = [len(item.values.get("log", [])) for item in history]
    assert lengths[0] == len(expected)
    assert lengths == sorted(lengths, reverse=True)
    assert set(lengths) == set(range(len(expected) + 1))
    for item in history:
        words = item.values.get("log", [])
        assert words == expected[: len(words)]
        assert (await reader.state(diary(reader), item.config)).values == item.values
