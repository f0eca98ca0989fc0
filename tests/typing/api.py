"""The public face as type checkers see it; checked by mypy and pyright, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from pymongo import AsyncMongoClient, MongoClient

from docstore_saver import AsyncDocStoreSaver, CheckReport, DocStoreSaver, Progress, Removed, StoreStats, ThreadInfo


def sync(client: MongoClient[dict[str, Any]], config: RunnableConfig) -> None:
    saver = DocStoreSaver(client, database="agents", ttl=timedelta(days=30), tenant="acme")
    as_base: BaseCheckpointSaver[Any] = saver
    assert_type(saver.get_tuple(config), CheckpointTuple | None)
    assert_type(saver.for_tenant("acme"), DocStoreSaver)
    assert_type(DocStoreSaver.in_memory(), DocStoreSaver)
    with DocStoreSaver.from_conn_string("mongodb://localhost", database="agents") as made:
        assert_type(made, DocStoreSaver)
    for item in saver.list(config, filter={"source": "loop"}, limit=5):
        assert_type(item, CheckpointTuple)
    as_base.delete_thread("t")


def report(progress: Progress) -> None:
    assert_type(progress.total, int | None)


def maintenance(saver: DocStoreSaver) -> None:
    assert_type(saver.prune(["t"], keep_last=3, older_than=timedelta(days=1), progress=report), Removed)
    assert_type(saver.delete_for_runs({"run"}, grace=0, dry_run=True), Removed)
    assert_type(saver.sweep(), Removed)
    assert_type(saver.check(repair=True), CheckReport)
    assert_type(saver.expire(), int)
    assert_type(saver.stats(progress=report), StoreStats)
    saver.set_ttl(None)
    saver.copy_thread("t", "u", overwrite=True)
    for thread in saver.threads(order_by="activity", limit=10):
        assert_type(thread, ThreadInfo)


async def asynchronous(client: AsyncMongoClient[dict[str, Any]], config: RunnableConfig) -> None:
    saver = AsyncDocStoreSaver(client, "agents", inline_limit=1024, delta_strategy="scan", timeout=5)
    assert_type(await saver.aget_tuple(config), CheckpointTuple | None)
    assert_type(saver.get_next_version(1, None), int)
    async with AsyncDocStoreSaver.from_conn_string("mongodb://localhost") as made:
        assert_type(made, AsyncDocStoreSaver)
    async for item in saver.alist(config):
        assert_type(item, CheckpointTuple)


async def asynchronous_maintenance(saver: AsyncDocStoreSaver) -> None:
    assert_type(await saver.aprune(iter(["t"]), strategy="delete"), Removed)
    assert_type(await saver.adelete_for_runs(["run"]), Removed)
    assert_type(await saver.asweep(["t"], grace=timedelta(minutes=20)), Removed)
    assert_type(await saver.acheck(["t"]), CheckReport)
    assert_type(await saver.aexpire(progress=report), int)
    assert_type(await saver.astats(), StoreStats)
    await saver.aset_ttl(timedelta(days=30))
    await saver.acopy_thread("t", "u")
    async for thread in saver.athreads():
        assert_type(thread, ThreadInfo)
