"""Public bug reports about prune, copy_thread and delete_for_runs, on real graphs with delta channels."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from support.builders import checkpoint, checkpoint_id, config, ids, metadata, whole_thread
from support.env import Env, scenario
from support.stores import Store


def gather(value: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*value, *(item for write in writes for item in write)]


class Diary(TypedDict):
    log: Annotated[list[Any], DeltaChannel(gather, snapshot_frequency=4)]
    rare: Annotated[list[Any], DeltaChannel(gather)]
    never: Annotated[list[Any], DeltaChannel(gather)]


def diary(store: Store) -> Any:
    """A chat with three delta channels: one with snapshots, one without any so far, one that is never written."""
    builder = StateGraph(Diary)
    builder.add_node("note", lambda state: {"log": [f"note {len(state['log'])}"], "rare": [len(state["log"])]})
    builder.add_edge(START, "note")
    builder.add_edge("note", END)
    return builder.compile(checkpointer=store.saver)


async def talk(store: Store, thread: str, turns: int = 5, run: str | None = None) -> Any:
    graph = diary(store)
    for turn in range(turns):
        where = config(thread) if run is None else {**config(thread), "metadata": {"run_id": f"{run}-{turn}"}}
        await store.invoke(graph, {"log": [turn]}, where)
    return (await store.state(graph, config(thread))).values


@pytest.mark.parametrize("grace", [timedelta(hours=1), timedelta(0)], ids=["hidden", "removed"])
@scenario
async def test_prune_keeps_what_a_delta_channel_is_rebuilt_from(env: Env, grace: timedelta) -> None:
    """Cutting the chain behind the latest checkpoint left delta channels empty, without an error (langgraph #8531)."""
    store = env.open()
    wanted, other = await talk(store, "t"), await talk(store, "u")
    removed = await store.call("prune", ["t", "unknown"], grace=grace)
    assert removed.hidden > 10
    assert bool(removed.lineage) == (not grace)
    for reader in (store, env.open()):
        assert (await reader.state(diary(reader), config("t"))).values == wanted
        assert len(await reader.list(config("t"))) == 1
    longer = await talk(store, "t", 3)
    assert longer["log"][: len(wanted["log"])] == wanted["log"]
    assert longer["rare"][: len(wanted["rare"])] == wanted["rare"]
    assert len(longer["log"]) == len(wanted["log"]) + 6
    await store.call("prune", [], strategy="delete")
    assert (await store.state(diary(store), config("t"))).values == longer
    await store.call("prune", ["t"], strategy="delete")
    assert await store.list(config("t")) == []
    assert (await store.state(diary(store), config("u"))).values == other
    assert (await store.call("check")).findings == ()


class Quiet(TypedDict):
    log: Annotated[list[Any], DeltaChannel(gather, snapshot_frequency=4)]
    never: Annotated[list[Any], DeltaChannel(gather)]


@scenario
async def test_a_channel_that_was_never_written_keeps_nothing(env: Env) -> None:
    """Its counter alone would keep every ancestor; and a first write later is no sign of a broken chain."""
    store = env.open()
    builder = StateGraph(Quiet)
    builder.add_node("note", lambda state: {"log": [f"note {len(state['log'])}"]})
    builder.add_edge(START, "note")
    builder.add_edge("note", END)
    graph = builder.compile(checkpointer=store.saver)
    for turn in range(8):
        await store.invoke(graph, {"log": [turn]}, config())
    wanted = (await store.state(graph, config())).values
    rows = env.raw["docstore_checkpoints"]
    assert rows.count_documents({"delta.channel": "never"}) > 16
    await store.call("prune", ["t"], grace=0)
    assert rows.count_documents({}) <= 9
    assert (await store.state(graph, config())).values == wanted
    await store.invoke(graph, {"log": ["more"], "never": ["now"]}, config())
    assert (await store.state(graph, config())).values["never"] == ["now"]
    assert (await store.call("check")).findings == ()


@scenario
async def test_copy_thread_copies_the_whole_chain(env: Env) -> None:
    """A copy of the latest checkpoint alone has no delta state (langchain-oceanbase #157)."""
    store = env.open(inline_limit=64)
    wanted = await talk(store, "source")
    head = (await store.list(config("source")))[0]
    await store.put_writes(head.config, [("channel", "w" * 100)], "task", "p")
    await store.put(config("source", "sub:1"), checkpoint(1, {"x": "v" * 100}), metadata())
    await store.call("copy_thread", "source", "target")
    copies, sources = [await store.list(whole_thread(thread)) for thread in ("target", "source")]
    assert ids(copies) == ids(sources)
    assert [item.checkpoint for item in copies] == [item.checkpoint for item in sources]
    assert [item.metadata for item in copies] == [item.metadata for item in sources]
    assert [item.pending_writes for item in copies] == [item.pending_writes for item in sources]
    await store.delete_thread("source")
    reader = env.open()
    assert (await reader.state(diary(reader), config("target"))).values == wanted
    assert (await store.call("check")).findings == ()
    await store.call("copy_thread", "missing", "another")
    assert await store.list(whole_thread("another")) == []
    assert (await talk(store, "target", 1))["log"][: len(wanted["log"])] == wanted["log"]


@pytest.mark.parametrize("grace", [timedelta(hours=1), timedelta(0)], ids=["hidden", "removed"])
@scenario
async def test_delete_for_runs_takes_only_those_runs(env: Env, grace: timedelta) -> None:
    """Also in other threads and namespaces, and an unknown run is no error (langchain-oceanbase #157)."""
    store = env.open()
    at = config()
    for n, run in enumerate(["r1", "r1", "r2", "r3"]):
        at = await store.put(at, checkpoint(n, {"x": n}), metadata(n, run_id=run))
        await store.put_writes(at, [("x", run)], "task", "p")
    await store.put(config("other", "sub:1"), checkpoint(9), metadata(0, run_id="r1"))
    await store.call("delete_for_runs", ["r1", "unknown"], grace=grace)
    assert ids(await store.list(config())) == [checkpoint_id(3), checkpoint_id(2)]
    assert await store.list(whole_thread("other")) == []
    assert [write[2] for write in (await store.get(config())).pending_writes] == ["r3"]
    await store.call("delete_for_runs", [])
    assert len(await store.list(config())) == 2


@scenario
async def test_later_runs_stand_on_a_deleted_one(env: Env) -> None:
    """The delta channels of a run that went on from a deleted one keep their whole value."""
    store = env.open()
    wanted = await talk(store, "t", run="turn")
    await store.call("delete_for_runs", ["turn-1", "turn-2"], grace=0)
    reader = env.open()
    assert (await reader.state(diary(reader), config("t"))).values == wanted
    assert {item.metadata["run_id"] for item in await reader.list(config("t"))} == {"turn-0", "turn-3", "turn-4"}
    assert (await store.call("check")).findings == ()


@scenario
async def test_a_run_that_is_taken_back_can_be_done_again(env: Env) -> None:
    """Its writes at the checkpoint where it began count no more, though the new run's have the same names."""
    store = env.open()
    first = await store.put(config(), checkpoint(0, {"x": 0}), metadata(0, run_id="r1"))
    wrong = {**first, "metadata": {"run_id": "wrong"}}
    await store.put_writes(wrong, [("x", "wrong"), ("y", "wrong")], "task", "p")
    await store.put(wrong, checkpoint(1, {"x": 1}), metadata(1, run_id="wrong"))
    await store.call("delete_for_runs", ["wrong"])
    assert (await store.get(config())).pending_writes == []
    right = {**first, "metadata": {"run_id": "right"}}
    await store.put_writes(right, [("x", "right"), ("y", "right")], "task", "p")
    assert [write[2] for write in (await store.get(config())).pending_writes] == ["right", "right"]
    await store.call("sweep", grace=0)
    assert [write[2] for write in (await store.get(config())).pending_writes] == ["right", "right"]


def of_run(run: str, *channels: str) -> Any:
    """Metadata as LangGraph makes it: the counters say which channels are delta channels."""
    return metadata(1, run_id=run, counters_since_delta_snapshot=dict.fromkeys(channels, (1, 1)))


@scenario
async def test_a_removed_branch_does_not_take_what_another_is_rebuilt_from(env: Env) -> None:
    """One run's writes are read through two children; one of them and the writers' run are deleted."""
    store = env.open()

    async def put(n: int, run: str, parent: Any, versions: dict[str, int], values: Any = None, new: Any = None) -> Any:
        item = checkpoint(n, values or {}, versions)
        return await store.put(parent, item, of_run(run, "log", "notes"), versions if new is None else new)

    both = {"log": 2, "notes": 2}
    p = await put(0, "A", config("t"), {"log": 1, "notes": 1})
    await store.put_writes({**p, "metadata": {"run_id": "B"}}, [("log", "x"), ("notes", "y")], "task")
    w = await put(1, "A", p, both)
    g = await put(2, "G", p, {"log": 3, "notes": 2}, {"log": _DeltaSnapshot(["x"])})
    g2 = await put(3, "A", g, {"log": 3, "notes": 2}, new={})
    wanted = {"log": ["x"], "notes": ["y"]}

    async def rebuilt(at: Any) -> dict[str, Any]:
        found = await store.history(at, ["log", "notes"])
        return {name: [write[2] for write in item["writes"]] for name, item in found.items()}

    assert await rebuilt(w) == wanted
    assert (await rebuilt(g2))["notes"] == ["y"]
    await store.call("delete_for_runs", ["G", "B"], grace=0)
    assert await rebuilt(w) == wanted
    assert (await rebuilt(g2))["notes"] == ["y"]
    assert (await store.history(g2, ["log"]))["log"]["seed"].value == ["x"]
    assert {c["configurable"]["checkpoint_id"] for c in (p, w, g2)} == {*ids(await store.list(whole_thread()))}
    assert (await store.call("check", grace=0)).is_ok


@scenario
async def test_writes_of_a_deleted_run_stay_away_from_later_children(env: Env) -> None:
    """They remain only for the child that was made with them; a child that comes later never saw them."""
    store = env.open()
    p = await store.put(config("t"), checkpoint(0, {}, {"log": 1}), of_run("A", "log"), {"log": 1})
    await store.put_writes({**p, "metadata": {"run_id": "B"}}, [("log", "gone")], "task-1")
    old = await store.put(p, checkpoint(1, {}, {"log": 2}), of_run("A", "log"), {"log": 2})
    await store.call("delete_for_runs", ["B"])
    await store.put_writes({**p, "metadata": {"run_id": "C"}}, [("log", "new")], "task-2")
    late = await store.put(p, checkpoint(2, {}, {"log": 3}), of_run("C", "log"), {"log": 3})
    for _ in range(2):
        # Of the older child nobody can say that it did not see the newer write.
        assert "gone" in [write[2] for write in (await store.history(old, ["log"]))["log"]["writes"]]
        assert [write[2] for write in (await store.history(late, ["log"]))["log"]["writes"]] == ["new"]
        await store.call("sweep", ["t"], grace=0)
