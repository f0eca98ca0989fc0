"""threads and stats: what plain fields tell, a page at a time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from support.builders import chain, checkpoint, checkpoint_id, config, metadata
from support.env import Env, scenario
from support.interleave import Stepper, runner_for
from support.kinds import MONGOMOCK, PYMONGO
from support.maintained import AGO, make_old
from support.stores import Store

from docstore_saver import Progress
from docstore_saver.calls import COLLECTIONS, Call
from docstore_saver.documents import now
from docstore_saver.plans import copying, overview, retention
from docstore_saver.policies import Keep
from docstore_saver.thread_queries import is_hidden_before, newest, next_threads, threads_of_runs


async def threads(store: Store, **options: Any) -> list[Any]:
    if store.is_async:
        return [info async for info in store.saver.athreads(**options)]
    return list(store.saver.threads(**options))


async def fill(store: Store) -> None:
    """Five threads whose activity is not in the order of their ids; one has two namespaces and large values."""
    for at, name in enumerate(["c", "a", "e", "b", "d"]):
        await chain(store, 3, name, first=10 * at, values=lambda n: {"x": n})
    stored = await chain(store, 2, "a", "sub:1", first=40, values=lambda n: {"big": f"{n}" * 20_000})
    await store.put_writes(stored[-1], [("x", 1), ("x", "w" * 20_000)], "task")


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "SCAN", 4)
    monkeypatch.setattr(overview, "_ROWS", 3)


@pytest.mark.usefixtures("small_pages")
@scenario
async def test_threads_in_both_orders(env: Env) -> None:
    """Each comes once, also where a page of checkpoints ends within one."""
    store = env.open()
    await fill(store)
    await chain(store.over(store.saver.for_tenant("another")), 2, "a")
    assert [info.thread_id for info in await threads(store)] == ["a", "b", "c", "d", "e"]
    by_activity = await threads(store, order_by="activity")
    assert Counter(info.thread_id for info in by_activity) == Counter("abcde")
    assert [info.thread_id for info in by_activity] in (["d", "a", "b", "e", "c"], ["a", "d", "b", "e", "c"])
    assert [info.newest for info in by_activity] == sorted((info.newest for info in by_activity), reverse=True)
    assert await threads(store, order_by="activity", limit=2) == by_activity[:2]
    assert await threads(store, limit=0) == []


@pytest.mark.usefixtures("small_pages")
@scenario
async def test_the_empty_thread_id(env: Env) -> None:
    """It is a thread id as any other to LangGraph, and the first in the order."""
    store = env.open()
    for name in ("", "a"):
        await chain(store, 6, name)
    for order in ("thread_id", "activity"):
        assert sorted(info.thread_id for info in await threads(store, order_by=order)) == ["", "a"]
    assert (await store.call("stats")).threads == 2
    await store.put_writes(config("", id=checkpoint_id(9)), [("x", 1)], "of a checkpoint that never came")
    make_old(env, "")
    assert [found.thread_id for found in (await store.call("check")).findings] == [""]
    for name in ("", "a"):
        env.raw["docstore_checkpoints"].update_one(
            {"thread_id": name, "checkpoint_id": checkpoint_id(0)}, {"$set": {"hidden_at": now() - AGO}}
        )
    assert (await store.call("sweep")).checkpoints == 2


@pytest.mark.usefixtures("small_pages")
@scenario
async def test_copies_with_equal_ids_come_each_once(env: Env) -> None:
    store = env.open()
    await chain(store, 3, "t", values=lambda n: {"x": n})
    for n in range(5):
        await store.call("copy_thread", "t", f"copy {n}")
    for order in ("thread_id", "activity"):
        found = [info.thread_id for info in await threads(store, order_by=order)]
        assert sorted(found) == [*(f"copy {n}" for n in range(5)), "t"]


@scenario
async def test_figures_are_those_of_the_documents(env: Env) -> None:
    store = env.open()
    await fill(store)
    await store.call("prune", ["b"])
    found = {info.thread_id: info for info in await threads(store)}
    for name, info in found.items():
        documents = [env.raw[f"docstore_{each}"].find({"thread_id": name}) for each in COLLECTIONS]
        rows, writes, values = (list(some) for some in documents)
        assert info.bytes == sum(document["size"] for document in (*rows, *writes, *values))
        assert info.checkpoints + info.hidden == len(rows)
        assert (info.writes, info.values) == (len(writes), len({value["value_id"] for value in values}))
        assert info.last_activity == max(row["created_at"] for row in rows)
    assert found["a"].namespaces == ("", "sub:1")
    assert (found["b"].checkpoints, found["b"].hidden) == (1, 2)
    stats = await store.call("stats")
    assert (stats.threads, stats.checkpoints, stats.hidden) == (5, 15, 2)
    assert stats.bytes == sum(info.bytes for info in found.values())
    assert stats.values == sum(info.values for info in found.values()) == 3


@scenario
async def test_what_readers_do_not_see_is_not_listed(env: Env) -> None:
    store = env.open(ttl=1000)
    await chain(store, 2, "alive")
    await chain(store, 2, "over")
    over = {"$set": {"active_at": now() - timedelta(seconds=1100)}}
    env.raw["docstore_checkpoints"].update_many({"thread_id": "over"}, over)
    assert [info.thread_id for info in await threads(store)] == ["alive"]
    assert [info.thread_id for info in await threads(store, order_by="activity")] == ["alive"]
    assert (await store.call("stats")).ttl_seconds == 1000


@pytest.mark.kinds(PYMONGO, MONGOMOCK)
@scenario
async def test_an_unfinished_copy_is_not_listed(env: Env) -> None:
    store = env.open()
    await chain(store, 2, "t", values=lambda n: {"x": n})
    copy = Stepper(
        copying.copy_thread(store.saver._scope(), "", "t", "copy", overwrite=False),
        runner_for(store.client, env.database, store.saver._names),
    )
    while copy.pending()[0].method != "insert_one":
        copy.advance()
    assert env.raw["docstore_checkpoints"].count_documents({"thread_id": "copy"}) == 2
    assert [info.thread_id for info in await threads(store)] == ["t"]
    assert await store.get(config("copy")) is None
    assert await store.list(config("copy")) == []
    copy.finish()
    assert [info.thread_id for info in await threads(store)] == ["copy", "t"]


@scenario
async def test_progress_and_a_stop(env: Env) -> None:
    """What the callback raises stops the prune behind that thread; a second run does the rest."""
    store = env.open()
    await fill(store)
    told: list[Progress] = []

    def stop(progress: Progress) -> None:
        told.append(progress)
        if progress.done == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await store.call("prune", ["a", "b", "c"], progress=stop)
    assert [(item.operation, item.thread_id, item.done, item.total) for item in told] == [
        ("prune", "a", 1, 3),
        ("prune", "b", 2, 3),
    ]
    hidden = {info.thread_id: info.hidden for info in await threads(store)}
    assert hidden == {"a": 3, "b": 2, "c": 0, "d": 0, "e": 0}
    await store.call("prune", ["a", "b", "c"])
    assert {info.thread_id: info.hidden for info in await threads(store)}["c"] == 2


@scenario
async def test_sweep_finds_the_threads_by_itself(env: Env) -> None:
    store = env.open()
    await fill(store)
    await store.call("prune", ["a", "b", "c"])
    assert (await store.call("sweep")).checkpoints == 0
    told: list[str] = []
    removed = await store.call("sweep", grace=0, progress=lambda progress: told.append(progress.thread_id))
    assert removed.checkpoints == 7
    assert told == ["a", "b", "c"]
    assert (await store.call("sweep", grace=0)).checkpoints == 0


@pytest.mark.kinds(PYMONGO)
@scenario
async def test_every_query_over_threads_uses_an_index(env: Env) -> None:
    store = env.open()
    await fill(store)
    stored = await store.put(config("r"), checkpoint(99), metadata(run_id="r1"))
    await store.put_writes({**stored, "metadata": {"run_id": "r1"}}, [("x", 1)], "task")
    await store.call("prune", ["b"])
    plans = {
        "key": [next_threads(name, "", "a", 100) for name in COLLECTIONS],
        "newest": [newest({"tenant": "", "hidden_at": None}, 10)],
        "run": [threads_of_runs("checkpoints", "", ["r1", "r2"]), threads_of_runs("writes", "", ["r1", "r2"])],
        "hidden": [next_threads("checkpoints", "", "", 100, is_hidden_before(now()))],
    }
    for index, calls in plans.items():
        for call in calls:
            used = indexes(explain(env, call))
            assert used == {index}, (call, used)


def explain(env: Env, call: Call) -> Any:
    name = f"docstore_{call.collection}"
    commands: dict[str, dict[str, Any]] = {
        "find": {"find": name, "filter": call.arguments[0], "sort": dict(call.options.get("sort", []))},
        "aggregate": {"aggregate": name, "pipeline": call.arguments[0], "cursor": {}},
        "distinct": {"distinct": name, "key": call.arguments[0], "query": call.arguments[-1]},
    }
    return env.raw.command("explain", commands[call.method], verbosity="queryPlanner")


def indexes(plan: Any) -> set[str]:
    """The names of the indexes of a winning plan; "none" for a scan of the collection."""
    if isinstance(plan, list):
        return {name for item in plan for name in indexes(item)}
    if not isinstance(plan, dict):
        return set()
    own = {plan["indexName"]} if "indexName" in plan else set()
    own |= {"none"} if plan.get("stage") == "COLLSCAN" else set()
    return own | {name for key, item in plan.items() if key != "rejectedPlans" for name in indexes(item)}


@pytest.mark.kinds(MONGOMOCK)
@scenario
async def test_a_dry_run_changes_nothing_and_tells_the_truth(env: Env) -> None:
    store = env.open()
    await fill(store)
    for operation in ("prune", "delete"):
        options = {"strategy": "delete"} if operation == "delete" else {"grace": 0}
        before = env.raw_bytes()
        planned = await store.call("prune", ["a", "b"], dry_run=True, **options)
        assert env.raw_bytes() == before
        assert await store.call("prune", ["a", "b"], **options) == planned
        assert planned.bytes > 0
    scope = store.saver._scope()
    runner = runner_for(store.client, env.database, store.saver._names)
    none = runner.run(retention.prune(scope, "", "nobody", Keep(), timedelta(0), dry_run=False))
    assert (none.hidden, none.checkpoints, none.bytes) == (0, 0, 0)
