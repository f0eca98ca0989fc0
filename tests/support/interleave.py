"""Runs plans command by command, in any order: races by construction, without a sleep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, cast

from docstore_saver.calls import Call, Compute, Group, Plan, Step
from docstore_saver.clients import collections_of
from docstore_saver.runners import SyncRunner


class Stepper:
    """A plan that is run one command at a time."""

    def __init__(self, plan: Plan[Any], runner: SyncRunner) -> None:
        self._plan, self._runner = plan, runner
        self._answer: Any = None
        self._error: Exception | None = None
        self.is_done = False
        self._pending: Step | None = None
        self.answer: Any = None
        """What the plan answered in the end."""
        self.failure: Exception | None = None

    def pending(self) -> Sequence[Call]:
        """What the next command would be (or the commands of a group); empty where there is none left."""
        while self._pending is None and not self.is_done:
            try:
                step = self._plan.throw(self._error) if self._error else self._plan.send(self._answer)
            except StopIteration as stop:
                self.is_done, self.answer = True, stop.value
            except Exception as error:
                self.is_done, self.failure = True, error
            else:
                self._answer, self._error = None, None
                if isinstance(step, Compute):
                    self._perform(step)
                else:
                    self._pending = step
        if self._pending is None:
            return ()
        return self._pending.calls if isinstance(self._pending, Group) else [cast("Call", self._pending)]

    def advance(self) -> bool:
        """Run the next command; False where there is none left."""
        if not self.pending() or self._pending is None:
            return False
        step, self._pending = self._pending, None
        self._perform(step)
        return True

    def _perform(self, step: Step) -> None:
        try:
            self._answer = self._runner._perform(step)
        except Exception as error:
            self._error = error

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


def every_order(start: Callable[[], tuple[Stepper, Stepper]]) -> Iterator[tuple[Stepper, Stepper]]:
    """Run two plans in every order of their commands that can make a difference; yields them when both are done.

    Orders that only exchange neighbours which do not touch the same documents end in the same state, so one of them
    stands for all: a command that is passed over in favour of an independent one sleeps until a dependent one wakes it.
    """
    waiting: list[tuple[list[int], int | None]] = [([], None)]
    while waiting:
        path, asleep = waiting.pop()
        both = start()
        for choice in path:
            both[choice].advance()
        while True:
            next_calls = [stepper.pending() for stepper in both]
            choices = [which for which in (0, 1) if next_calls[which] and which != asleep]
            if not choices:
                break
            choice = choices[0]
            if len(choices) > 1:
                waiting.append(([*path, 1], 0 if _are_independent(*next_calls) else None))
            if asleep is not None and not _are_independent(next_calls[asleep], next_calls[choice]):
                asleep = None
            both[choice].advance()
            path = [*path, choice]
        if all(stepper.is_done for stepper in both):
            yield both


def _are_independent(some: Sequence[Call], others: Sequence[Call]) -> bool:
    return not any(
        _collections(one) & _collections(other) and (_changes(one) or _changes(other))
        for one in some
        for other in others
    )


def _changes(call: Call) -> bool:
    if call.method == "aggregate":
        return "$merge" in call.arguments[0][-1]
    return call.method not in ("find", "distinct")


def _collections(call: Call) -> set[str]:
    looks_up = call.method == "aggregate" and any("$lookup" in stage for stage in call.arguments[0])
    return {call.collection, *(["writes"] if looks_up else [])}


def run_in_order(first: Stepper, second: Stepper, order: Sequence[bool]) -> None:
    for is_first in order:
        (first if is_first else second).advance()
    first.finish()
    second.finish()
