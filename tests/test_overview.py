"""threads, stats and progress: what plain fields tell of a store, compared with a look at every raw document."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta
from typing import Any

import pytest
from support.builders import chain, checkpoint, checkpoint_id, config, metadata
from support.env import Env, scenario
from support.interleave import Stepper, runner_for
from support.kinds import EMBEDDED, MONGOMOCK, ON_MONGOD, PYMONGO
from support.maintained import documents, infos, stored
from support.stores import Store

from docstore_saver import thread_queries
from docstore_saver.calls import Call
from docstore_saver.documents import now
from docstore_saver.plans import copying, overview
from docstore_saver.reports import Progress, StoreStats, ThreadInfo

LARGE = "v" * 20_000
FAT = "v" * 2_000_000
"""A value of two parts."""
NAMES = ["a", "b", "B", "ü", "€", "😀", "$gt", "a.b", "a:b", " ", "t" * 300, *(f"t{n}" for n in range(12))]
LONG_AGO = timedelta(days=900)


class Stop(Exception):  # noqa: N818  # a caller's own, to end an operation
    """What a progress callback raises."""


def small_pages(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(overview, "SCAN", size)
    monkeypatch.setattr(overview, "_ROWS", size)


def expected(env: Env, tenant: str = "") -> list[ThreadInfo]:
    """The threads with a visible checkpoint, by id, as their raw documents show them."""
    found = documents(env, tenant=tenant)
    answer = []
    for thread in sorted({row["thread_id"] for row in found["checkpoints"]}):
        rows, writes, parts = ([doc for doc in some if doc["thread_id"] == thread] for some in found.values())
        visible = [row for row in rows if row.get("hidden_at") is None]
        if visible:
            answer.append(
                ThreadInfo(
                    thread_id=thread,
                    namespaces=tuple(sorted({row["checkpoint_ns"] for row in visible})),
                    checkpoints=len(visible),
                    hidden=len(rows) - len(visible),
                    last_activity=max(row["created_at"] for row in visible),
                    newest=max(row["checkpoint_id"] for row in visible),
                    writes=len(writes),
                    values=len({part["value_id"] for part in parts}),
                    bytes=sum(document["size"] for document in [*rows, *writes, *parts]),
                )
            )
    return answer


def added(threads: list[ThreadInfo]) -> StoreStats:
    names = ("checkpoints", "hidden", "writes", "values", "bytes")
    return StoreStats(threads=len(threads), **{name: sum(getattr(info, name) for info in threads) for name in names})


def by_id(threads: list[ThreadInfo]) -> list[ThreadInfo]:
    return sorted(threads, key=lambda info: info.thread_id)


async def random_store(env: Env, store: Store, seed: int) -> None:
    """Threads that share checkpoint ids, in several namespaces, with writes, values and hidden checkpoints."""
    draw = random.Random(seed)
    for name in draw.sample(NAMES, 14):
        for n in sorted(draw.sample(range(12), draw.randrange(1, 5))):
            ns = draw.choice(["", "", "sub:1", "keeps"])
            values = {"x": n, **({"large": LARGE} if draw.random() < 0.3 else {})}
            at = await store.put(config(name, ns), checkpoint(n, values), metadata(n))
            if draw.random() < 0.4:
                await store.put_writes(at, [("x", 1), ("y", draw.choice([2, LARGE]))], "task")
            if draw.random() < 0.2:
                where = {"thread_id": name, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id(n)}
                env.raw["docstore_checkpoints"].update_one(where, {"$set": {"hidden_at": now()}})


async def unfinished_copy(env: Env, store: Store, source: str, target: str) -> None:
    """All documents of a copy but the commit that shows it."""
    runner = runner_for(env.raw.client, env.database, store.saver._names)
    plan = copying.copy_thread(store.saver._scope(), "", source, target, overwrite=False)
    stepper = Stepper(plan, runner)
    while (pending := stepper.pending()) and not is_commit(pending[0]):
        stepper.advance()
    assert pending


def is_commit(call: Call) -> bool:
    return call.method == "insert_one" and call.arguments[0].get("field") == "copy"


@pytest.mark.parametrize("seed", range(3))
@scenario
async def test_threads_and_stats_are_what_the_documents_say(
    env: Env, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    store = env.open()
    await random_store(env, store, seed)
    wanted = expected(env)
    assert 10 <= len(wanted) <= 14
    for size in (1, 3, 1000):
        small_pages(monkeypatch, size)
        assert await infos(store) == wanted
        active = await infos(store, order_by="activity")
        assert by_id(active) == wanted
        newest = [info.newest for info in active]
        assert newest == sorted(newest, reverse=True)
        assert len(set(newest)) < len(newest)  # ties, or the test shows less than it says
        for limit in (0, 1, 5, 1000):
            assert await infos(store, limit=limit) == wanted[:limit]
            assert [info.newest for info in await infos(store, order_by="activity", limit=limit)] == newest[:limit]
    assert await store.call("stats") == sums_of_all(env)


def sums_of_all(env: Env) -> StoreStats:
    """Hidden checkpoints, and threads that have no others, count too."""
    found = documents(env)
    return StoreStats(
        threads=len(expected(env)),
        checkpoints=sum(row.get("hidden_at") is None for row in found["checkpoints"]),
        hidden=sum(row.get("hidden_at") is not None for row in found["checkpoints"]),
        writes=len(found["writes"]),
        values=len({(part["thread_id"], part["value_id"]) for part in found["values"]}),
        bytes=sum(document["size"] for document in stored(env)),
    )


@scenario
async def test_an_empty_store(env: Env) -> None:
    store = env.open()
    for order_by in ("thread_id", "activity"):
        assert await infos(store, order_by=order_by) == []
    assert await store.call("stats") == StoreStats()


@scenario
async def test_a_value_counts_once_whatever_its_parts(env: Env) -> None:
    store = env.open()
    await chain(store, 1, values=lambda _: {"fat": FAT})
    assert len(documents(env)["values"]) == 2
    (info,) = await infos(store)
    assert (info.values, (await store.call("stats")).values) == (1, 1)
    assert info.bytes == sum(document["size"] for document in stored(env)) > len(FAT)


@scenario
async def test_copies_share_their_newest_id(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than a page has rows, and in two namespaces: a page by id alone would never end, or lose some."""
    store = env.open()
    await chain(store, 3, "source")
    await chain(store, 3, "source", "sub:1")
    await chain(store, 1, "older")
    names = [f"copy {n}" for n in range(5)]
    for name in names:
        await store.call("copy_thread", "source", name)
    await chain(store, 1, "newer", first=9)
    small_pages(monkeypatch, 2)
    listed = [info.thread_id for info in await infos(store, order_by="activity")]
    assert listed[0] == "newer"
    assert sorted(listed[1:-1]) == [*names, "source"]
    assert listed[-1] == "older"
    assert {info.namespaces for info in await infos(store)} == {("",), ("", "sub:1")}


@scenario
async def test_a_thread_that_is_forgotten_is_not_listed_again(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was listed is remembered within bounds; a thread's older checkpoints lie behind its newest one."""
    monkeypatch.setattr(overview, "_REMEMBERED", 1)
    small_pages(monkeypatch, 3)
    store = env.open()
    for n in range(6):
        await chain(store, 2, f"t{n}", first=n)
    listed = [info.thread_id for info in await infos(store, order_by="activity")]
    assert listed == [f"t{n}" for n in reversed(range(6))]


@scenario
async def test_a_thread_that_goes_on_meanwhile_is_not_passed_over(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newest checkpoint is then above the place in the list, and all others are no longer its newest."""
    small_pages(monkeypatch, 2)
    store = env.open()
    for n in range(6):
        await chain(store, 1, f"t{n}", first=n)
    listing = store.saver._thread_listing("activity", None)
    runner = runner_for(env.raw.client, env.database, store.saver._names)
    listed = []
    while (info := runner.run(listing.next())) is not None:
        if not listed:
            await store.put(config("t1", id=checkpoint_id(1)), checkpoint(50, {"x": 50}))
        listed.append(info.thread_id)
    assert sorted(listed) == [f"t{n}" for n in range(6)]


@scenario
async def test_threads_that_come_and_go_meanwhile(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was read stands; every other thread comes once."""
    small_pages(monkeypatch, 2)
    store = env.open()
    for n in range(8):
        await chain(store, 1, f"t{n}")
    listing = store.saver._thread_listing("thread_id", None)
    runner = runner_for(env.raw.client, env.database, store.saver._names)
    listed = [runner.run(listing.next()).thread_id]
    await store.delete_thread("t4")
    await chain(store, 1, "t45")
    await chain(store, 1, "a")
    while (info := runner.run(listing.next())) is not None:
        listed.append(info.thread_id)
    assert listed == ["t0", "t1", "t2", "t3", "t45", "t5", "t6", "t7"]


@scenario
async def test_the_thread_whose_id_is_empty(env: Env) -> None:
    """The empty string is an identifier like any other."""
    store = env.open()
    await chain(store, 1, "")
    await chain(store, 1, "t")
    for order_by in ("thread_id", "activity"):
        assert sorted(info.thread_id for info in await infos(store, order_by=order_by)) == ["", "t"], order_by
    assert (await store.call("stats")).threads == 2


@scenario
async def test_tenants_see_their_own(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thread ids and checkpoint ids are the same; a saver without a tenant is one of its own."""
    store = env.open()
    views = {"": store} | {name: store.over(store.saver.for_tenant(name)) for name in ("acme", "umbrella")}
    for length, view in enumerate(views.values(), 1):
        for thread in ("a", "b"):
            for at in await chain(view, length, thread, values=lambda n: {"x": n, "large": LARGE}):
                await view.put_writes(at, [("x", 1)], "task")
    for size in (1, 1000):
        small_pages(monkeypatch, size)
        for length, (tenant, view) in enumerate(views.items(), 1):
            wanted = expected(env, tenant)
            assert [info.checkpoints for info in wanted] == [length, length]
            assert await infos(view) == by_id(await infos(view, order_by="activity")) == wanted
            assert await view.call("stats") == added(wanted)


@scenario
async def test_hidden_checkpoints_are_counted_apart(env: Env) -> None:
    """By a prune in its grace, and as lineage; the newest visible one gives the thread its place."""
    store = env.open()
    await chain(store, 5, "t")
    await chain(store, 1, "u", first=3)
    await store.call("prune", ["t"], keep_last=2)
    t, u = await infos(store)
    assert (t.checkpoints, t.hidden, t.newest) == (2, 3, checkpoint_id(4))
    env.raw["docstore_checkpoints"].update_one(
        {"thread_id": "t", "checkpoint_id": checkpoint_id(4)}, {"$set": {"hidden_at": now()}}
    )
    t, u = await infos(store)
    assert (t.checkpoints, t.hidden, t.newest) == (1, 4, checkpoint_id(3))
    assert u.hidden == 0
    stats = await store.call("stats")
    assert (stats.threads, stats.checkpoints, stats.hidden) == (2, 2, 4)


@scenario
async def test_a_thread_without_a_visible_checkpoint_is_in_the_sums_only(env: Env) -> None:
    store = env.open()
    await chain(store, 2, "t")
    env.raw["docstore_checkpoints"].update_many({}, {"$set": {"hidden_at": now()}})
    assert await infos(store) == await infos(store, order_by="activity") == []
    stats = await store.call("stats")
    assert (stats.threads, stats.checkpoints, stats.hidden) == (0, 0, 2)
    assert stats.bytes == sum(document["size"] for document in stored(env))


@scenario
async def test_what_a_deletion_left_is_in_the_sums(env: Env) -> None:
    """`stats` says what is stored, so that nobody wonders where the bytes are."""
    store = env.open()
    (at,) = await chain(store, 1, values=lambda _: {"large": LARGE})
    await store.put_writes(at, [("x", LARGE)], "task")
    env.raw["docstore_checkpoints"].delete_many({})
    stats = await store.call("stats")
    assert (stats.threads, stats.writes, stats.values) == (0, 1, 2)
    assert stats.bytes == sum(document["size"] for document in stored(env))


@scenario
async def test_expired_threads_are_not_listed(env: Env) -> None:
    """They are gone for every other reader, though no server has removed them yet."""
    store = env.open(ttl=10_000_000)
    await chain(store, 1, "alive")
    await chain(store, 3, "over", first=5)
    stamp = now() - timedelta(seconds=10_000_001)
    env.raw["docstore_checkpoints"].update_many({"thread_id": "over"}, {"$set": {"active_at": stamp}})
    for reader in (store, env.open()):
        for order_by in ("thread_id", "activity"):
            assert [info.thread_id for info in await infos(reader, order_by=order_by)] == ["alive"]
        stats = await reader.call("stats")
        assert (stats.threads, stats.checkpoints, stats.ttl_seconds) == (1, 1, 10_000_000)


@pytest.mark.kinds(PYMONGO, MONGOMOCK)
@scenario
async def test_unfinished_copies_are_not_listed(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the commit nobody sees them; one page may hold both a copy and its source."""
    store = env.open()
    await chain(store, 3, "source", values=lambda n: {"x": n, "large": LARGE})
    await unfinished_copy(env, store, "source", "target")
    assert len(documents(env, thread_id="target")["checkpoints"]) == 3
    for size in (1, 1000):
        small_pages(monkeypatch, size)
        for order_by in ("thread_id", "activity"):
            assert [info.thread_id for info in await infos(store, order_by=order_by)] == ["source"]
        assert (await store.call("stats")).threads == 1
    monkeypatch.undo()
    await store.call("copy_thread", "source", "target")
    assert [info.thread_id for info in await infos(store)] == ["source", "target"]


@scenario
async def test_progress_tells_every_thread(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all operations over many threads; the total where it is known before."""
    small_pages(monkeypatch, 1)
    store = env.open(ttl=10_000_000)
    names = ["a", "b", "c"]
    for name in names:
        await chain(store, 2, name, values=lambda n: {"x": n})
        await store.put({**config(name), "metadata": {"run_id": "r"}}, checkpoint(5), metadata(5, run_id="r"))
    seen: list[Progress] = []

    def told(operation: str, total: int | None) -> bool:
        wanted = [
            Progress(operation=operation, thread_id=name, done=done, total=total) for done, name in enumerate(names, 1)
        ]
        answer = seen == wanted
        seen.clear()
        return answer

    await store.call("stats", progress=seen.append)
    assert told("stats", None)
    await store.call("check", progress=seen.append)
    assert told("check", None)
    await store.call("check", names, progress=seen.append)
    assert told("check", 3)
    await store.call("delete_for_runs", ["r"], progress=seen.append)
    assert told("delete_for_runs", 3)
    await store.call("prune", names, progress=seen.append)
    assert told("prune", 3)
    await store.call("sweep", names, progress=seen.append)
    assert told("sweep", 3)
    hide_longer(env)
    await store.call("sweep", progress=seen.append)
    assert told("sweep", None)
    for name in ("checkpoints", "writes", "values"):
        env.raw[f"docstore_{name}"].drop_index("ttl")
        old = {"$set": {"active_at": now() - LONG_AGO}}
        env.raw[f"docstore_{name}"].update_many({"thread_id": {"$exists": True}}, old)
    assert await store.call("expire", progress=seen.append) == 3
    assert told("expire", None)


def hide_longer(env: Env) -> None:
    """As if what is hidden had been so for long."""
    rows = env.raw["docstore_checkpoints"]
    assert rows.update_many({"hidden_at": {"$ne": None}}, {"$set": {"hidden_at": now() - LONG_AGO}}).modified_count


@scenario
async def test_a_callback_that_raises_stops_a_prune_and_a_second_run_finishes(env: Env) -> None:
    """The thread that it was told of is done, the next ones are untouched."""
    store = env.open()
    names = ["a", "b", "c", "d"]
    for name in names:
        await chain(store, 3, name)
    error = Stop("enough")

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise error

    with pytest.raises(Stop) as caught:
        await store.call("prune", names, grace=0, progress=stop)
    assert caught.value is error
    assert [len(documents(env, thread_id=name)["checkpoints"]) for name in names] == [1, 1, 3, 3]
    removed = await store.call("prune", names, grace=0)
    assert (removed.checkpoints, removed.hidden) == (4, 4)
    assert [len(documents(env, thread_id=name)["checkpoints"]) for name in names] == [1, 1, 1, 1]
    for name in names:
        assert (await store.get(config(name))).checkpoint["channel_values"] == {"x": 2}


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_commands_for_a_page_of_threads(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five for a page, whatever the threads hold; what stands behind a limit is not read."""
    store = env.open()
    for n in range(6):
        await chain(store, 2, f"t{n}", values=lambda n: {"x": n, "large": LARGE})
    sums = ["aggregate checkpoints", "aggregate checkpoints", "aggregate writes", "aggregate values"]
    page, active = ["aggregate checkpoints", *sums], ["find checkpoints", *sums]
    counted: dict[str, list[str]] = {}
    for name, arguments in {
        "all": {},
        "some": {"limit": 3},
        "none": {"limit": 0},
        "active": {"order_by": "activity"},
        "last": {"order_by": "activity", "limit": 3},
    }.items():
        small_pages(monkeypatch, 4)  # two checkpoints for each thread
        with env.commands.count() as sent:
            await infos(store, **arguments)
        counted[name] = sorted_groups(env.commands.names(sent))
    assert counted["all"] == sorted_groups([*page * 3, "aggregate checkpoints"])
    assert counted["some"] == sorted_groups(page * 2)
    assert counted["none"] == []
    # The last two pages hold only checkpoints of threads that were listed, or none.
    assert counted["active"] == sorted_groups([*active * 2, "find checkpoints", "find checkpoints"])
    assert counted["last"] == sorted_groups(active)
    with env.commands.count() as sent:
        await store.call("stats")
    assert sorted_groups(env.commands.names(sent)) == sorted_groups([*page * 3, "aggregate checkpoints"])


def sorted_groups(names: list[str]) -> list[str]:
    """The async runner sends the calls of a group together, in no order of their own."""
    return sorted(names)


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_nothing_of_a_payload_is_read(env: Env) -> None:
    """Figures come from sums on the server: no state, and no document of the writes and values, reaches the client."""
    store = env.open()
    await chain(store, 2, values=lambda n: {"x": n, "large": LARGE})
    with env.commands.count() as sent:
        await infos(store)
        await infos(store, order_by="activity")
        await store.call("stats")
    for name, body in sent:
        if name == "find":
            assert "projection" in body
            assert not {"core", "values", "metadata"} & body["projection"].keys()
        else:
            assert "$group" in body["pipeline"][-1]


def chosen(env: Env, call: Call) -> tuple[set[str], set[str]]:
    """The stages of the plan that the server chose for a call, and the indexes that it uses."""
    collection = f"docstore_{call.collection}"
    if call.method == "aggregate":
        command = {"aggregate": collection, "pipeline": call.arguments[0], "cursor": {}}
    elif call.method == "distinct":
        command = {"distinct": collection, "key": call.arguments[0], "query": call.arguments[1]}
    else:
        sort = dict(call.options["sort"])
        command = {"find": collection, "filter": call.arguments[0], "sort": sort, "limit": call.options["limit"]}
    stages: set[str] = set()
    indexes: set[str] = set()
    gather(env.raw.command("explain", command, verbosity="queryPlanner"), stages, indexes)
    return stages, indexes


def gather(plan: Any, stages: set[str], indexes: set[str]) -> None:
    if isinstance(plan, dict):
        stages.update({plan["stage"]} if isinstance(plan.get("stage"), str) else ())
        indexes.update({plan["indexName"]} if "indexName" in plan else ())
        for key, value in plan.items():
            if key != "rejectedPlans":
                gather(value, stages, indexes)
    elif isinstance(plan, list):
        for value in plan:
            gather(value, stages, indexes)


@pytest.mark.kinds(PYMONGO)
@scenario
async def test_every_query_over_threads_uses_its_index(env: Env) -> None:
    store = env.open(ttl=10_000_000)
    for n in range(20):
        for at in await chain(store, 10, f"t{n:02}"):
            await store.put_writes({**at, "metadata": {"run_id": f"r{n}"}}, [("x", 1)], "task")
    await store.put({**config("of a run"), "metadata": {"run_id": "r"}}, checkpoint(1), metadata(1, run_id="r"))
    await store.call("prune", ["t03"])
    env.raw["docstore_checkpoints"].drop_index("ttl")  # expire() is for stores that have none
    hidden = thread_queries.is_hidden_before(now())
    old = {"active_at": {"$lte": now()}}
    queries: dict[str, tuple[Call, set[str]]] = {
        "threads": (thread_queries.next_threads("checkpoints", "", "t05", 50), {"key"}),
        "threads of values": (thread_queries.next_threads("values", "", "t05", 50), {"key"}),
        "hidden": (thread_queries.next_threads("checkpoints", "", "t01", 50, hidden), {"hidden"}),
        "expired": (thread_queries.next_threads("checkpoints", "", "t01", 50, old), {"key"}),
        "newest": (thread_queries.newest({"tenant": "", "hidden_at": None}, 50), {"newest"}),
        "runs": (thread_queries.threads_of_runs("checkpoints", "", ["r", "s"]), {"run"}),
        "runs of writes": (thread_queries.threads_of_runs("writes", "", ["r1", "r2", "r3"]), {"run"}),
    }
    for name, (call, wanted) in queries.items():
        stages, indexes = chosen(env, call)
        assert indexes == wanted, (name, stages)
        assert not {"COLLSCAN", "SORT"} & stages, (name, stages)
    more = {"tenant": "", "hidden_at": None, "checkpoint_id": {"$lte": checkpoint_id(5)}, "_id": {"$nin": ["a", "b"]}}
    stages, indexes = chosen(env, thread_queries.newest(more, 50))
    assert indexes == {"newest"}
    assert "SORT" not in stages
    for call in thread_queries.sums("", ["t01", "t02"]):
        stages, indexes = chosen(env, call)
        assert indexes == {"key"}
        assert "COLLSCAN" not in stages


@pytest.mark.kinds(*EMBEDDED)
@scenario
async def test_a_list_that_is_not_read_to_its_end(env: Env) -> None:
    """It holds nothing open; another one begins anew."""
    store = env.open()
    for n in range(3):
        await chain(store, 1, f"t{n}")
    if store.is_async:
        async for info in store.saver.athreads():
            assert info.thread_id == "t0"
            break
    else:
        assert [info.thread_id for info in itertools.islice(store.saver.threads(), 1)] == ["t0"]
    assert len(await infos(store)) == 3
