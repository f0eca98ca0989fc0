"""The public face as type checkers see it; checked by mypy and pyright, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from pymongo import AsyncMongoClient, MongoClient

from docstore_saver import AsyncDocStoreSaver, DocStoreSaver


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


async def asynchronous(client: AsyncMongoClient[dict[str, Any]], config: RunnableConfig) -> None:
    saver = AsyncDocStoreSaver(client, "agents", inline_limit=1024, delta_strategy="scan", timeout=5)
    assert_type(await saver.aget_tuple(config), CheckpointTuple | None)
    assert_type(saver.get_next_version(1, None), int)
    async with AsyncDocStoreSaver.from_conn_string("mongodb://localhost") as made:
        assert_type(made, AsyncDocStoreSaver)
    async for item in saver.alist(config):
        assert_type(item, CheckpointTuple)
