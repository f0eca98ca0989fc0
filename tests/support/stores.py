"""One interface over both faces, so that a test is written once.

Its coroutines never suspend on a sync saver, so those tests run where no event loop exists at all (`support.env`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.kinds import Kind


class Store:
    """A saver, seen through its sync or its async methods."""

    def __init__(self, saver: Any, kind: Kind, client: Any) -> None:
        self.saver, self.kind, self.client = saver, kind, client
        self.is_async = kind.is_async

    def over(self, saver: Any) -> Store:
        """The same for another saver on the same client (a clone, say)."""
        return Store(saver, self.kind, self.client)

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.is_async:
            return await getattr(self.saver, "a" + name)(*args, **kwargs)
        return getattr(self.saver, name)(*args, **kwargs)

    async def put(self, config: Any, checkpoint: Any, metadata: Any = None, new_versions: Any = None) -> Any:
        metadata = {"source": "loop", "step": 0, "parents": {}} if metadata is None else metadata
        new_versions = checkpoint["channel_versions"] if new_versions is None else new_versions
        return await self.call("put", config, checkpoint, metadata, new_versions)

    async def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await self.call("put_writes", config, writes, task_id, task_path)

    async def get(self, config: Any) -> Any:
        return await self.call("get_tuple", config)

    async def list(self, config: Any, **arguments: Any) -> list[Any]:
        if self.is_async:
            return [item async for item in self.saver.alist(config, **arguments)]
        return list(self.saver.list(config, **arguments))

    async def delete_thread(self, thread_id: Any) -> None:
        await self.call("delete_thread", thread_id)

    async def history(self, config: Any, channels: Any) -> Any:
        return await self.call("get_delta_channel_history", config=config, channels=channels)

    # The same for a compiled graph.

    async def invoke(self, graph: Any, value: Any, config: Any, **arguments: Any) -> Any:
        if self.is_async:
            return await graph.ainvoke(value, config, **arguments)
        return graph.invoke(value, config, **arguments)

    async def state(self, graph: Any, config: Any, **arguments: Any) -> Any:
        return await graph.aget_state(config, **arguments) if self.is_async else graph.get_state(config, **arguments)

    async def state_history(self, graph: Any, config: Any, **arguments: Any) -> list[Any]:
        if self.is_async:
            return [item async for item in graph.aget_state_history(config, **arguments)]
        return list(graph.get_state_history(config, **arguments))

    async def update(self, graph: Any, config: Any, values: Any, **arguments: Any) -> Any:
        if self.is_async:
            return await graph.aupdate_state(config, values, **arguments)
        return graph.update_state(config, values, **arguments)
