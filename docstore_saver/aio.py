"""The async face."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self, TypeVar

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
from docstore_saver.engine import AsyncEngine
from docstore_saver.errors import WrongFaceError
from docstore_saver.maintenance_async import AsyncMaintenance
from docstore_saver.plans.read import Listing

T = TypeVar("T")


class AsyncDocStoreSaver(AsyncMaintenance):
    """A LangGraph checkpointer over an AsyncMongoClient, Motor or mongomock-motor.

    Its event loop is that of the first awaited call. The sync methods may be called from other threads and run on that
    loop. Usable as it is and as an async context manager.
    """

    _face: Face = "async"

    def __init__(self, client: Any, database: str | None = None, **options: Any) -> None:
        super().__init__(client, database, **options)
        self._engine = AsyncEngine(self._source, self._names, self._options)

    __init__.__doc__ = SaverBase.__init__.__doc__

    async def asetup(self) -> None:
        """Make the indexes that are missing. Runs by itself before the first operation, unless ``auto_setup=False``."""
        await self._engine.set_up(self._plan_setup)

    async def aclose(self) -> None:
        """Close the client if the saver made it."""
        await self._engine.aclose()

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; answers the config that leads back to it."""
        stored, plan = self._plan_put(config, checkpoint, metadata, new_versions)
        await self._run(plan)
        return stored

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store a task's writes. The first write of a task's place wins; interrupts, errors and resumes replace."""
        await self._run(self._plan_put_writes(config, writes, task_id, task_path))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """One checkpoint by id, or the latest of the thread's namespace."""
        return await self._run(self._plan_get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints newest first: of a namespace, a thread, or (config None) of the whole tenant."""
        listing = self._listing(config, filter, before, limit)
        while (item := await self._run(listing.next())) is not None:
            yield item

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with everything that belongs to it."""
        await self._run(self._plan_delete_thread(thread_id))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel, the writes since its nearest stored value, oldest first, and that value."""
        return await self._run(self._plan_history(config, channels))

    def setup(self) -> None:
        """`asetup`, from another thread than the loop's."""
        self._engine.bridge(self.asetup)

    def close(self) -> None:
        """`aclose`, from another thread than the loop's."""
        self._engine.bridge(self.aclose)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`aput`, from another thread than the loop's."""
        return self._engine.bridge(lambda: self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`aput_writes`, from another thread than the loop's."""
        self._engine.bridge(lambda: self.aput_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`aget_tuple`, from another thread than the loop's."""
        return self._engine.bridge(lambda: self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """`alist`, from another thread than the loop's."""
        return self._iterate(self._listing(config, filter, before, limit))

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread`, from another thread than the loop's."""
        self._engine.bridge(lambda: self.adelete_thread(thread_id))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`aget_delta_channel_history`, from another thread than the loop's."""
        return self._engine.bridge(lambda: self.aget_delta_channel_history(config=config, channels=channels))

    async def _run(self, plan: Plan[T]) -> T:
        return await self._engine.run(plan, self._plan_first_use)

    def _iterate(self, listing: Listing) -> Iterator[CheckpointTuple]:
        while (item := self._engine.bridge(lambda: self._run(listing.next()))) is not None:
            yield item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> NoReturn:
        raise WrongFaceError("Use `async with` for an AsyncDocStoreSaver, or take DocStoreSaver.")

    def __exit__(self, *_: object) -> None:
        """Never reached: `__enter__` raises."""
