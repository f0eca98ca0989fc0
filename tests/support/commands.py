"""Counts the commands that reach a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

_DRIVERS_OWN = {"hello", "isMaster", "ismaster", "ping", "endSessions", "buildInfo", "killCursors"}


class Commands(CommandListener):
    """The commands of all clients of a test, as (name, body), without those that drivers send for themselves."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name not in _DRIVERS_OWN:
            self.sent.append((event.command_name, dict(event.command)))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Only starts are counted."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Only starts are counted."""

    @contextmanager
    def count(self) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        """The commands that are sent inside the block."""
        first = len(self.sent)
        sent: list[tuple[str, dict[str, Any]]] = []
        yield sent
        sent += self.sent[first:]

    @staticmethod
    def names(sent: list[tuple[str, dict[str, Any]]]) -> list[str]:
        """What the commands do: the name and, where there is one, the collection without its prefix."""
        return [f"{name} {str(body.get(name, '')).removeprefix('docstore_')}".strip() for name, body in sent]
