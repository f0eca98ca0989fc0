"""How many commands each operation sends, and that every hot query runs on an index."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import chain, checkpoint, checkpoint_id, config, metadata
from support.env import Env, scenario
from support.kinds import ON_MONGOD
from support.stores import Store

pytestmark = pytest.mark.kinds(*ON_MONGOD)
LARGE = "v" * 20_000
MB = 1024 * 1024


async def ready(env: Env, **options: Any) -> Store:
    """A saver whose setup is over."""
    store = env.open(**options)
    await store.get(config("nothing"))
    return store


@scenario
async def test_put(env: Env) -> None:
    store = await ready(env)
    with env.commands.count() as first:
        at = await store.put(config(), checkpoint(0, {"x": 1}), metadata())
    with env.commands.count() as child:
        at = await store.put(at, checkpoint(1, {"x": 2}), metadata())
    with env.commands.count() as again:
        await store.put(config(id=checkpoint_id(0)), checkpoint(1, {"x": 3}), metadata())
    assert env.commands.names(first) == ["insert checkpoints"]
    assert env.commands.names(child) == ["insert checkpoints"]
    assert env.commands.names(again) == ["insert checkpoints", "update checkpoints"]


@pytest.mark.parametrize("value", [LARGE, _DeltaSnapshot(["small"]), "v" * (10 * MB), "v" * (20 * MB)])
@scenario
async def test_put_with_new_large_values_costs_two(env: Env, value: Any) -> None:
    store = await ready(env)
    with env.commands.count() as sent:
        await store.put(config(), checkpoint(0, {"x": value}), metadata())
    assert env.commands.names(sent) == ["insert values", "insert checkpoints"]


@scenario
async def test_put_does_not_send_an_unchanged_value_again(env: Env) -> None:
    store = await ready(env)
    at = await store.put(config(), checkpoint(0, {"big": LARGE, "x": 0}), metadata())
    with env.commands.count() as sent:
        for n in range(1, 5):
            versions = {"big": 1, "x": n + 1}
            at = await store.put(at, checkpoint(n, {"big": LARGE, "x": n}, versions), metadata(), {"x": n + 1})
    assert env.commands.names(sent) == ["insert checkpoints"] * 4
    assert env.raw["docstore_values"].count_documents({"value_id": {"$exists": True}}) == 1
    assert (await store.get(at)).checkpoint["channel_values"] == {"big": LARGE, "x": 4}


@scenario
async def test_put_on_a_parent_of_another_process_asks_once(env: Env) -> None:
    at = await (await ready(env)).put(config(), checkpoint(0, {"big": LARGE}), metadata())
    store = await ready(env)
    with env.commands.count() as first:
        at = await store.put(at, checkpoint(1, {"big": LARGE}, {"big": 1}), metadata(), {})
    with env.commands.count() as second:
        await store.put(at, checkpoint(2, {"big": LARGE}, {"big": 1}), metadata(), {})
    assert env.commands.names(first) == ["find checkpoints", "update values", "insert checkpoints"]
    assert env.commands.names(second) == ["insert checkpoints"]


@scenario
async def test_put_after_get_knows_its_parent(env: Env) -> None:
    at = await (await ready(env)).put(config(), checkpoint(0, {"x": 1}), metadata())
    store = await ready(env)
    await store.get(at)
    with env.commands.count() as sent:
        await store.put(at, checkpoint(1, {"x": 2}), metadata())
    assert env.commands.names(sent) == ["insert checkpoints"]


@scenario
async def test_put_writes(env: Env) -> None:
    store = await ready(env)
    at = await store.put(config(), checkpoint(0), metadata())
    counted: dict[str, list[str]] = {}
    for name, writes in {
        "none": [],
        "one": [("x", 1)],
        "many": [("x", n) for n in range(500)],
        "large": [("x", LARGE), ("y", 1)],
        "repeated": [("x", 1)],
        "special": [("__interrupt__", "a")],
        "special again": [("__interrupt__", "b")],
    }.items():
        with env.commands.count() as sent:
            await store.put_writes(at, writes, "repeat" if "repeat" in name else name.split()[0])
        counted[name] = env.commands.names(sent)
    insert = "insert writes"
    assert counted == {
        "none": [],
        "one": [insert],
        "many": [insert],
        "large": ["insert values", insert],
        "repeated": [insert],
        "special": [insert],
        "special again": [insert, "update writes"],
    }


@scenario
async def test_get_tuple(env: Env) -> None:
    store = await ready(env)
    small = (await chain(store, 3))[-1]
    large = await store.put(config("big"), checkpoint(9, {"x": LARGE, "y": LARGE}), metadata())
    for where in (config(), small):
        with env.commands.count() as sent:
            assert await store.get(where) is not None
        assert env.commands.names(sent) == ["aggregate checkpoints"]
    with env.commands.count() as sent:
        assert (await store.get(large)).checkpoint["channel_values"] == {"x": LARGE, "y": LARGE}
    assert env.commands.names(sent) == ["aggregate checkpoints", "find values"]


@scenario
async def test_get_tuple_whose_writes_exceed_a_reply(env: Env) -> None:
    """$lookup cannot answer over 16 MB; two finds can."""
    store = await ready(env)
    at = await store.put(config(), checkpoint(0), metadata())
    await store.put_writes(at, [("x", "v" * 15_000) for _ in range(1200)], "task")
    found = await store.get(at)
    assert len(found.pending_writes) == 1200
    assert {write[2] for write in found.pending_writes} == {"v" * 15_000}


@scenario
async def test_list(env: Env) -> None:
    store = await ready(env)
    for at in await chain(store, 25, values=lambda n: {"x": n, "big": LARGE + str(n % 2)}):
        await store.put_writes(at, [("x", 1)], "task")
    with env.commands.count() as sent:
        assert len(await store.list(config(), limit=20)) == 20
    assert env.commands.names(sent) == ["find checkpoints", "find writes", "find values"]
    with env.commands.count() as sent:
        assert len(await store.list(None, limit=20)) == 20
    assert env.commands.names(sent) == ["find checkpoints", "find writes", "find values"]


@scenario
async def test_a_page_of_200_is_one_round(env: Env) -> None:
    """The driver's first batch of 101 would cost a getMore each."""
    store = await ready(env)
    for at in await chain(store, 200):
        await store.put_writes(at, [("x", 1)], "task")
    with env.commands.count() as sent:
        assert len(await store.list(config(), limit=200)) == 200
    assert env.commands.names(sent) == ["find checkpoints", "find writes"]


@scenario
async def test_delete_thread(env: Env) -> None:
    store = await ready(env)
    await chain(store, 3)
    with env.commands.count() as sent:
        await store.delete_thread("t")
    assert env.commands.names(sent) == ["delete checkpoints", "delete writes", "delete values"]


@scenario
async def test_setup_leaves_nothing_to_do_for_the_next(env: Env) -> None:
    await ready(env)
    with env.commands.count() as sent:
        await ready(env)
    names = env.commands.names(sent)
    assert names.count("createIndexes checkpoints") == 1
    assert len(names) == 6, names  # foreign documents, settings, three times createIndexes, the get itself


@scenario
async def test_every_hot_query_uses_an_index_and_no_sort_in_memory(env: Env) -> None:
    store = env.open(inline_limit=64, indexed_metadata=["user"])
    heads = await chain(store, 5, values=lambda n: {"x": n, "big": LARGE + str(n)})
    await chain(store, 3, ns="sub:1", first=50)
    await store.put(heads[-1], checkpoint(9, {"x": 1}), metadata(9, user="u", run_id="r"))
    for at in heads:
        await store.put_writes(at, [("log", LARGE)], "task")
    fresh = await ready(env, inline_limit=64, indexed_metadata=["user"])
    with env.commands.count() as sent:
        for where in (config(), heads[1]):
            await fresh.get(where)
        for where in (config(), {"configurable": {"thread_id": "t"}}, None, heads[1]):
            await fresh.list(where, limit=4)
        await fresh.list(None, filter={"user": "u"})
        await fresh.history(heads[-1], ["log"])
        await env.open(delta_strategy="graph_lookup").history(heads[-1], ["log"])
        await fresh.put(heads[1], checkpoint(99, {"big": LARGE}, {"big": 2}), metadata(), {})
        await fresh.delete_thread("t")
    explained = [explain(env, name, body) for name, body in sent if name in ("find", "aggregate", "update", "delete")]
    assert len(explained) > 12
    for name, stages in explained:
        assert "COLLSCAN" not in stages, (name, stages)
        assert "SORT" not in stages, (name, stages)


def explain(env: Env, name: str, body: dict[str, Any]) -> tuple[str, list[str]]:
    """The stages of the plan that the server chose."""
    command = {key: value for key, value in body.items() if not key.startswith(("$", "lsid", "txn"))}
    command.pop("writeConcern", None)
    plan = env.raw.command("explain", command, verbosity="queryPlanner")
    stages: list[str] = []
    collect(plan, stages)
    return f"{name} {body[name]} {body.get('filter') or body.get('pipeline')}", stages


def collect(plan: Any, stages: list[str]) -> None:
    if isinstance(plan, dict):
        if isinstance(plan.get("stage"), str):
            stages.append(plan["stage"])
        for key, value in plan.items():
            if key != "rejectedPlans":
                collect(value, stages)
    elif isinstance(plan, list):
        for value in plan:
            collect(value, stages)
