"""Values that no argument should be taken in by, and a way to check that they are refused before any command."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from bson import ObjectId, Regex

from docstore_saver.errors import InvalidArgumentError
from support.builders import chain, checkpoint, config, metadata
from support.env import Env
from support.stores import Store

_LONGEST_MESSAGE = 400


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"d": value}
    return value


NO_STRINGS: Mapping[str, Any] = {
    "dict": {"a": 1},
    "operator": {"$gt": ""},
    "javascript": {"$where": "true"},
    "list": ["t"],
    "bytes": b"t",
    "regex": re.compile("t"),
    "bson regex": Regex("t"),
    "object id": ObjectId(),
    "int": 1,
    "float": 1.0,
    "bool": True,
    "depth 200": nested(200),
}
LONG = "t" * 2**20
NO_IDENTIFIERS: Mapping[str, Any] = {**NO_STRINGS, "lone surrogate": "t\ud800", "1 MB": LONG}
NO_MAPPINGS: Mapping[str, Any] = {
    **{kind: value for kind, value in NO_IDENTIFIERS.items() if not isinstance(value, dict)},
    "str": "t",
}
NO_NAMES: Mapping[str, Any] = {**NO_STRINGS, "lone surrogate": "t\ud800", "None": None}
"""For names that may be long: channels, paths of tasks."""


class Attempts:
    """Makes calls that must be refused, and remembers those that were not."""

    def __init__(self, env: Env, store: Store) -> None:
        self.store = store
        self.faults: list[str] = []
        self._env = env

    async def refuse(self, what: str, says: str, method: str, *args: Any, **kwargs: Any) -> None:
        """The call must raise an error that `says` which argument is wrong, without a command."""
        with self._env.commands.count() as sent:
            outcome = await self._outcome(getattr(self.store, method)(*args, **kwargs), says)
        if sent:
            outcome += f" (after {self._env.commands.names(sent)})"
        if outcome:
            self.faults.append(f"{method}, {what}: {outcome}")

    @staticmethod
    async def _outcome(call: Awaitable[Any], says: str) -> str:
        try:
            await call
        except InvalidArgumentError as error:
            message = str(error)
            is_clear = says in message and len(message) < _LONGEST_MESSAGE
            return "" if is_clear else f"the message does not name {says!r}: {message[:_LONGEST_MESSAGE]}"
        except Exception as error:  # the fault that the test looks for
            return f"raised {error!r}"
        return "was accepted"


@asynccontextmanager
async def attack(env: Env, **options: Any) -> AsyncIterator[Attempts]:
    """Attempts on a store that holds one thread; afterwards nothing may be lost, changed or added."""
    store = env.open(**options)
    await keep_safe(store)
    stored = env.raw_bytes()
    attempts = Attempts(env, store)
    yield attempts
    assert not attempts.faults, "\n".join(attempts.faults)
    assert env.raw_bytes() == stored
    await require_safe(store)


async def keep_safe(store: Store) -> None:
    """Store the thread "safe": two checkpoints, a value of its own, pending writes."""
    (first,) = await chain(store, 1, "safe")
    head = await store.put(first, checkpoint(1, {"x": 1, "large": "y" * 20_000}), metadata(1))
    await store.put_writes(head, [("x", 2), ("y", "z" * 20_000)], "task")


async def require_safe(store: Store) -> None:
    found = await store.get(config("safe"))
    assert found.checkpoint["channel_values"] == {"x": 1, "large": "y" * 20_000}
    assert found.pending_writes == [("task", "x", 2), ("task", "y", "z" * 20_000)]
    assert len(await store.list(config("safe"))) == 2
