"""Runs plans command by command, in any order: races by construction, without a sleep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from docstore_saver.calls import Compute, Plan
from docstore_saver.clients import collections_of
from docstore_saver.runners import SyncRunner


class Stepper:
    """A plan that is run one command at a time."""

    def __init__(self, plan: Plan[Any], runner: SyncRunner) -> None:
        self._plan, self._runner = plan, runner
        self._answer: Any = None
        self._error: Exception | None = None
        self.is_done = False
        self.failure: Exception | None = None

    def advance(self) -> bool:
        """Run the next command; False where there is none left."""
        while not self.is_done:
            try:
                step = self._plan.throw(self._error) if self._error else self._plan.send(self._answer)
            except StopIteration:
                self.is_done = True
                return False
            except Exception as error:
                self.is_done, self.failure = True, error
                return False
            self._answer, self._error = None, None
            try:
                self._answer = self._runner._perform(step)
            except Exception as error:
                self._error = error
            if not isinstance(step, Compute):
                return True
        return False

    def finish(self) -> int:
        """Run what is left; answers how many commands that was."""
        count = 0
        while self.advance():
            count += 1
        return count


def runner_for(client: Any, database: str, names: Any) -> SyncRunner:
    return SyncRunner(collections_of(client, database, names), timeout=None, hosts="test", thread_safe=True)


def orders(first: int, second: int) -> Iterator[Sequence[bool]]:
    """Every way to merge two sequences of commands; True is a command of the first."""
    for places in combinations(range(first + second), first):
        yield [n in places for n in range(first + second)]


def run_in_order(first: Stepper, second: Stepper, order: Sequence[bool]) -> None:
    for is_first in order:
        (first if is_first else second).advance()
    first.finish()
    second.finish()
