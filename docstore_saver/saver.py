"""The sync face."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from docstore_saver.base import SaverBase
from docstore_saver.calls import Plan
from docstore_saver.clients import Face
from docstore_saver.engine import SyncEngine
from docstore_saver.maintenance_sync import SyncMaintenance
from docstore_saver.plans.read import Listing

T = TypeVar("T")


class DocStoreSaver(SyncMaintenance):
    """A LangGraph checkpointer over a MongoClient or mongomock. Its a... methods run in a thread pool of its own.

    Usable as it is and as a context manager; safe to share between threads.
    """

    _face: Face = "sync"

    def __init__(self, client: Any, database: str | None = None, **options: Any) -> None:
        super().__init__(client, database, **options)
        self._engine = SyncEngine(self._source, self._names, self._options)

    __init__.__doc__ = SaverBase.__init__.__doc__

    def setup(self) -> None:
        """Make the indexes that are missing. Runs by itself before the first operation, unless ``auto_setup=False``."""
        self._engine.set_up(self._plan_setup)

    def close(self) -> None:
        """Close the client if the saver made it."""
        self._engine.close()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; answers the config that leads back to it."""
        stored, plan = self._plan_put(config, checkpoint, metadata, new_versions)
        self._run(plan)
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store a task's writes. The first write of a task's place wins; interrupts, errors and resumes replace."""
        self._run(self._plan_put_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """One checkpoint by id, or the latest of the thread's namespace."""
        return self._run(self._plan_get_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints newest first: of a namespace, a thread, or (config None) of the whole tenant."""
        return self._iterate(self._listing(config, filter, before, limit))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with everything that belongs to it."""
        self._run(self._plan_delete_thread(thread_id))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel, the writes since its nearest stored value, oldest first, and that value."""
        return self._run(self._plan_history(config, channels))

    async def asetup(self) -> None:
        """`setup` in the saver's thread pool."""
        await self._engine.arun(self.setup)

    async def aclose(self) -> None:
        """`close` in the saver's thread pool."""
        await self._engine.arun(self.close)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put` in the saver's thread pool."""
        return await self._engine.arun(lambda: self.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes` in the saver's thread pool."""
        await self._engine.arun(lambda: self.put_writes(config, writes, task_id, task_path))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple` in the saver's thread pool."""
        return await self._engine.arun(lambda: self.get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list` in the saver's thread pool."""
        listing = self._listing(config, filter, before, limit)
        following: Callable[[], CheckpointTuple | None] = lambda: self._run(listing.next())  # noqa: E731  # typed
        while (item := await self._engine.arun(following)) is not None:
            yield item

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread` in the saver's thread pool."""
        await self._engine.arun(lambda: self.delete_thread(thread_id))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history` in the saver's thread pool."""
        return await self._engine.arun(lambda: self.get_delta_channel_history(config=config, channels=channels))

    def _run(self, plan: Plan[T]) -> T:
        return self._engine.run(plan, self._plan_first_use)

    def _iterate(self, listing: Listing) -> Iterator[CheckpointTuple]:
        while (item := self._run(listing.next())) is not None:
            yield item

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
