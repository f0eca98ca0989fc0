"""The arguments of every method, checked before any command is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from bson.code import Code
from langgraph.checkpoint.base import get_checkpoint_metadata

from docstore_saver.documents import Place, is_text
from docstore_saver.errors import InvalidArgumentError, shown
from docstore_saver.plans.read import ListQuery
from docstore_saver.plans.write import NewCheckpoint, Task
from docstore_saver.policies import Keep
from docstore_saver.reports import OnProgress
from docstore_saver.state import TOUCH_SECONDS, Ttl

LEAST_GRACE = timedelta(seconds=TOUCH_SECONDS * 1.5)
_MOST_PERIOD = timedelta(days=3650)


def identifier(name: str, value: Any, most_bytes: int) -> str:
    """A string, or a UUID as its text. Anything else is refused: 1 and "1" must not meet."""
    if isinstance(value, UUID):
        return str(value)
    # BSON's Code is a str to Python and something to execute to a server.
    if not isinstance(value, str) or isinstance(value, Code):
        raise InvalidArgumentError(
            f"{name} must be a str, not {type(value).__name__}. Convert it where you make the config: str(...)."
        )
    if not is_text(value):
        raise InvalidArgumentError(f"{name} holds a lone surrogate, which cannot be stored.")
    if len(value.encode()) > most_bytes:
        raise InvalidArgumentError(f"{name} is longer than the {most_bytes} bytes of UTF-8 that this store can index.")
    # Of a kind of str, the text itself: str() of an enum's member would be its name.
    return str.__str__(value)


def configurable(config: Any, name: str = "config") -> Mapping[str, Any]:
    """config["configurable"]."""
    if not isinstance(config, Mapping):
        raise InvalidArgumentError(f"{name} must be a dict, not {type(config).__name__}.")
    values = config.get("configurable", {})
    if not isinstance(values, Mapping):
        raise InvalidArgumentError(f'{name}["configurable"] must be a dict.')
    return values


def config_metadata(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """config["metadata"], which LangGraph merges into a checkpoint's."""
    metadata = config.get("metadata") or {}
    if not isinstance(metadata, Mapping) or not all(isinstance(key, str) for key in metadata):
        raise InvalidArgumentError('config["metadata"] must be a dict with str keys.')
    return metadata


def _period(name: str, value: Any) -> timedelta:
    """A timedelta or a number of seconds, of 0 or more."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    with suppress(OverflowError, ValueError):  # more than a timedelta holds, or no number at all
        period = timedelta(seconds=value) if is_number else value
        if isinstance(period, timedelta) and timedelta(0) <= period <= _MOST_PERIOD:
            return period
    raise InvalidArgumentError(f"{name}={shown(value)}: expected a timedelta or a number of seconds, 0 to 10 years.")


def _require_versions(versions: Mapping[Any, Any]) -> None:
    for channel, version in versions.items():
        if not isinstance(channel, str) or not isinstance(version, str | int | float) or isinstance(version, Code):
            raise InvalidArgumentError(
                f"The version of channel {channel!r:.100} must be a str, int or float, not {type(version).__name__}."
            )


class ArgumentReader:
    """Reads configs for one tenant of one store."""

    def __init__(self, tenant: str, most_bytes: int) -> None:
        self._tenant, self._most = tenant, most_bytes

    def thread_id(self, value: Any) -> str:
        return identifier("thread_id", value, self._most)

    def place(self, config: Any, *, checkpoint_id: bool = False) -> Place:
        """Thread, namespace and checkpoint of a config; a missing or empty checkpoint_id becomes ""."""
        values = configurable(config)
        if "thread_id" not in values:
            raise InvalidArgumentError('config["configurable"] needs a "thread_id" (str).')
        found = self._checkpoint_id("checkpoint_id", values.get("checkpoint_id"))
        if checkpoint_id and not found:
            raise InvalidArgumentError('config["configurable"] needs a "checkpoint_id" (str).')
        return Place(
            self._tenant,
            self.thread_id(values["thread_id"]),
            identifier("checkpoint_ns", values.get("checkpoint_ns", ""), self._most),
            found or "",
        )

    def new_checkpoint(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> NewCheckpoint:
        parent = self.place(config)
        if not isinstance(checkpoint, Mapping) or "id" not in checkpoint:
            raise InvalidArgumentError('checkpoint must be a dict with an "id", as LangGraph makes it.')
        for name in ("channel_values", "channel_versions"):
            if not isinstance(checkpoint.get(name), Mapping):
                raise InvalidArgumentError(f'checkpoint["{name}"] must be a dict.')
        if not isinstance(metadata, Mapping) or not isinstance(new_versions, Mapping):
            raise InvalidArgumentError("metadata and new_versions must be dicts.")
        self._channels(checkpoint["channel_values"])
        for versions in (checkpoint["channel_versions"], new_versions):
            _require_versions(versions)
        own_id = self._checkpoint_id('checkpoint["id"]', checkpoint["id"])
        if not own_id:
            raise InvalidArgumentError('checkpoint["id"] must not be empty.')
        config_metadata(config)
        merged = get_checkpoint_metadata(config, metadata)  # type: ignore[arg-type]  # checked above
        return NewCheckpoint(
            place=parent.at(own_id),
            parent_id=parent.checkpoint_id or None,
            checkpoint=checkpoint,
            metadata=merged,
            new_versions=new_versions,
            run_id=self._run_id(config, merged),
        )

    def writes(self, writes: Any) -> list[tuple[str, Any]]:
        if not isinstance(writes, Sequence) or isinstance(writes, str | bytes):
            raise InvalidArgumentError("writes must be a list of (channel, value).")
        pairs = []
        for write in writes:
            try:
                channel, value = write
            except (TypeError, ValueError):
                raise InvalidArgumentError("writes must be a list of (channel, value).") from None
            pairs.append((channel, value))
        names = self._channels(channel for channel, _ in pairs)
        return [(name, value) for name, (_, value) in zip(names, pairs, strict=True)]

    def task(self, config: Any, task_id: Any, task_path: Any) -> Task:
        if not is_text(task_path):
            raise InvalidArgumentError("task_path must be a str that UTF-8 can hold.")
        run_id = self._run_id(config, config_metadata(config), configurable(config))
        return Task(identifier("task_id", task_id, self._most), task_path, run_id)

    def list_query(self, config: Any, filter: Any, before: Any, limit: Any) -> ListQuery:
        values = configurable(config) if config is not None else {}
        if filter is not None and not isinstance(filter, Mapping):
            raise InvalidArgumentError("filter must be a dict of metadata keys and the values to equal.")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            raise InvalidArgumentError("limit must be an int or None.")
        bound = configurable(before, "before").get("checkpoint_id") if before is not None else None
        return ListQuery(
            tenant=self._tenant,
            thread_id=self.thread_id(values["thread_id"]) if "thread_id" in values else None,
            checkpoint_ns=self._optional("checkpoint_ns", values.get("checkpoint_ns")),
            checkpoint_id=self._checkpoint_id("checkpoint_id", values.get("checkpoint_id")),
            before=self._checkpoint_id("before's checkpoint_id", bound),
            filter=filter,
            limit=limit,
        )

    def ids(self, name: str, values: Any) -> list[str]:
        """Several thread or run ids, each once."""
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise InvalidArgumentError(f"{name} must be a list of str, not {type(values).__name__}.")
        return list(dict.fromkeys(identifier(f"each of {name}", value, self._most) for value in values))

    def copy(self, source: Any, target: Any) -> tuple[str, str]:
        source_id = identifier("source_thread_id", source, self._most)
        target_id = identifier("target_thread_id", target, self._most)
        if source_id == target_id:
            raise InvalidArgumentError("source_thread_id and target_thread_id are the same thread.")
        return source_id, target_id

    @staticmethod
    def keep(strategy: Any, keep_last: Any, older_than: Any, keep_forks: Any) -> Keep | None:
        """What a prune keeps; None where it keeps nothing."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidArgumentError(f'strategy={shown(strategy)}: expected "keep_latest" or "delete".')
        if strategy == "delete":
            if keep_last is not None or older_than is not None or keep_forks:
                raise InvalidArgumentError(
                    'strategy="delete" removes whole threads; keep_last=, older_than= and keep_forks= go with '
                    '"keep_latest".'
                )
            return None
        if keep_last is not None and (not isinstance(keep_last, int) or isinstance(keep_last, bool) or keep_last < 1):
            raise InvalidArgumentError(
                f'keep_last={shown(keep_last)}: expected an int of 1 or more. strategy="delete" removes all.'
            )
        period = None if older_than is None else _period("older_than", older_than)
        return Keep(last=keep_last or 1, younger_than=period, forks=keep_forks)

    @staticmethod
    def grace(value: Any) -> timedelta:
        """How long what goes stays whole; 0, or so long that no put takes what is removed for safe."""
        grace = _period("grace", value)
        if grace and grace < LEAST_GRACE:
            raise InvalidArgumentError(
                f"grace={shown(value)}: expected {LEAST_GRACE} or more, since a run relies on what it used ten minutes "
                "ago; or 0, when no run is going on in these threads."
            )
        return grace

    @staticmethod
    def flags(**flags: Any) -> None:
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise InvalidArgumentError(f"{name}={shown(value)}: expected True or False.")

    @staticmethod
    def ttl(value: Any) -> Ttl | None:
        """Seconds, rounded up, as in the constructor; None switches it off."""
        if value is None:
            return None
        period = _period("ttl", value)
        if not period:
            raise InvalidArgumentError("ttl=0: every thread would be over at once. None switches the ttl off.")
        return Ttl(-(-period // timedelta(seconds=1)))

    @staticmethod
    def listing(order_by: Any, limit: Any) -> tuple[bool, int | None]:
        if order_by not in ("thread_id", "activity"):
            raise InvalidArgumentError(f'order_by={shown(order_by)}: expected "thread_id" or "activity".')
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise InvalidArgumentError("limit must be an int of 0 or more, or None.")
        return order_by == "activity", limit

    @staticmethod
    def progress(value: Any) -> OnProgress | None:
        if value is not None and not callable(value):
            raise InvalidArgumentError(f"progress={shown(value)}: expected a function that takes a Progress, or None.")
        return value  # type: ignore[no-any-return]  # what it takes cannot be checked

    def channels(self, channels: Any) -> list[str]:
        if isinstance(channels, str | bytes) or not isinstance(channels, Sequence):
            raise InvalidArgumentError("channels must be a list of channel names.")
        return list(dict.fromkeys(self._channels(channels)))

    def _checkpoint_id(self, name: str, value: Any) -> str | None:
        """None and "" mean the latest, as LangGraph has it."""
        return self._optional(name, value) or None

    def _optional(self, name: str, value: Any) -> str | None:
        return None if value is None else identifier(name, value, self._most)

    @staticmethod
    def _channels(names: Any) -> list[str]:
        names = list(names)
        for name in names:
            if not is_text(name):
                raise InvalidArgumentError(
                    f"A channel name must be a str that UTF-8 can hold, not {type(name).__name__}."
                )
        return [str.__str__(name) for name in names]

    def _run_id(self, config: Mapping[str, Any], *sources: Mapping[str, Any]) -> str | None:
        """The run that a call belongs to; an id that cannot be indexed is as none."""
        for value in (*(source.get("run_id") for source in sources), config.get("run_id")):
            text = str(value) if isinstance(value, str | UUID) else ""
            if text and is_text(text) and len(text.encode()) <= self._most:
                return text
        return None
