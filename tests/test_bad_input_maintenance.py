"""Bad arguments of the maintenance methods: refused with a message that names them, before any command."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.builders import chain
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, PYMONGO
from support.made import made
from support.stores import Store

from docstore_saver.errors import DocStoreError, InvalidArgumentError, TenantRequiredError

pytestmark = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO)

BAD_IDS: list[Any] = ["t", b"t", None, 7, {"t": 1}, [1], ["t", None], ["\ud800"], ["t" * 20_000]]
BAD_GRACE: list[Any] = [
    -1,
    "1h",
    None,
    float("nan"),
    float("inf"),
    timedelta(seconds=-1),
    60,
    timedelta(minutes=14),
    True,
]
CASES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    *(("prune", [ids], {}, "thread_ids") for ids in BAD_IDS),
    *(("delete_for_runs", [ids], {}, "run_ids") for ids in BAD_IDS),
    *(("sweep", [ids], {}, "thread_ids") for ids in BAD_IDS if ids is not None),
    *(("check", [ids], {}, "thread_ids") for ids in BAD_IDS if ids is not None),
    *(("prune", [["t"]], {"grace": grace}, "grace") for grace in BAD_GRACE),
    *(("delete_for_runs", [["r"]], {"grace": grace}, "grace") for grace in BAD_GRACE),
    *(("sweep", [], {"grace": grace}, "grace") for grace in BAD_GRACE),
    *(("check", [], {"grace": grace}, "grace") for grace in BAD_GRACE),
    *(("prune", [["t"]], {"strategy": bad}, "strategy") for bad in ("latest", None, 1, "")),
    *(("prune", [["t"]], {"keep_last": bad}, "keep_last") for bad in (0, -1, True, 1.5, "2")),
    *(("prune", [["t"]], {"older_than": bad}, "older_than") for bad in (-1, "day", timedelta(days=-1), float("nan"))),
    *(("prune", [["t"]], {name: bad}, name) for name in ("keep_forks", "dry_run") for bad in (1, None, "yes")),
    *(
        ("prune", [["t"]], {"strategy": "delete", **more}, "strategy")
        for more in ({"keep_last": 1}, {"keep_forks": True})
    ),
    ("prune", [["t"]], {"strategy": "delete", "older_than": 60}, "older_than"),
    ("delete_for_runs", [["r"]], {"dry_run": 1}, "dry_run"),
    ("check", [], {"repair": 1}, "repair"),
    ("copy_thread", ["t", "t"], {}, "same thread"),
    ("copy_thread", [1, "t"], {}, "source_thread_id"),
    ("copy_thread", ["t", None], {}, "target_thread_id"),
    ("copy_thread", ["t", "u"], {"overwrite": "yes"}, "overwrite"),
    *(("set_ttl", [bad], {}, "ttl") for bad in (0, -1, "1d", timedelta(0), timedelta(days=4000), True)),
    *((name, [["t"]], {"progress": 1}, "progress") for name in ("prune", "delete_for_runs", "sweep", "check")),
    *((name, [], {"progress": "p"}, "progress") for name in ("stats", "expire")),
]
LISTINGS: list[tuple[dict[str, Any], str]] = [
    *(({"order_by": bad}, "order_by") for bad in ("id", None, 1)),
    *(({"limit": bad}, "limit") for bad in (-1, 1.5, "2", True)),
]


async def refused(env: Env, call: Any, says: str) -> None:
    with env.commands.count() as sent, pytest.raises(InvalidArgumentError, match=says):
        await call
    assert sent == []


async def first_of(store: Store, **options: Any) -> Any:
    if store.is_async:
        return [info async for info in store.saver.athreads(**options)]
    return list(store.saver.threads(**options))


@scenario
async def test_every_bad_argument_is_refused(env: Env) -> None:
    store = env.open()
    await chain(store, 1)
    before = env.raw_bytes()
    for name, arguments, options, says in CASES:
        await refused(env, store.call(name, *arguments, **options), says)
    for options, says in LISTINGS:
        await refused(env, first_of(store, **options), says)
    assert env.raw_bytes() == before


@scenario
async def test_without_a_tenant_nothing_is_touched(env: Env) -> None:
    """These methods get no config, so a key of the config cannot name one."""
    store = env.open(tenant_from="user")
    calls: list[tuple[str, list[Any]]] = [
        *(("prune", [["t"]]), ("delete_for_runs", [["r"]]), ("sweep", []), ("check", []), ("stats", [])),
        *(("copy_thread", ["t", "u"]), ("expire", [])),
    ]
    for name, arguments in calls:
        with env.commands.count() as sent, pytest.raises(TenantRequiredError):
            await store.call(name, *arguments)
        assert sent == []


@scenario
async def test_tenants_do_not_meet(env: Env) -> None:
    """The same thread and run of two tenants: what one removes, copies and counts is its own."""
    store = env.open()
    one, other = (store.over(store.saver.for_tenant(name)) for name in ("one", "other"))
    for each in (one, other):
        await chain(each, 3, values=lambda n: {"x": n, "big": "v" * 20_000})
    await one.call("prune", ["t"], grace=0)
    await one.call("copy_thread", "t", "u")
    await one.call("sweep", grace=0)
    await one.call("check", repair=True)
    assert len(await first_of(other)) == 1
    assert len(await other.list({"configurable": {"thread_id": "t"}})) == 3
    await one.call("prune", ["t", "u"], strategy="delete")
    assert (await one.call("stats")).bytes == 0
    assert (await other.call("check")).findings == ()
    assert (await other.call("stats")).checkpoints == 3


@scenario
async def test_ids_may_come_from_any_iterable(env: Env) -> None:
    store = env.open()
    await chain(store, 3)
    assert (await store.call("prune", (name for name in ["t", "t"]))).hidden == 2
    assert (await store.call("prune", {"t"})).hidden == 0
    assert (await store.call("prune", [])).hidden == 0
    assert (await store.call("delete_for_runs", [""])).hidden == 0


@scenario
async def test_a_closed_client_says_so(env: Env) -> None:
    async with made(env, env.uri, database=env.database) as store:
        await store.call("close")
        for name, arguments in (("prune", [["t"]]), ("copy_thread", ["t", "u"]), ("stats", []), ("check", [])):
            with pytest.raises(DocStoreError, match="closed"):
                await store.call(name, *arguments)
