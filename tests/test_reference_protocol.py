"""A put that takes over a stored value, against a collector of values nobody refers to: every order of commands.

The collector here follows docs/format.md, section 5: look for values without a reference, then delete each head by a
delete whose own filter says that nobody touched it for the grace, then its parts.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from support.builders import checkpoint, config, metadata
from support.env import Env, scenario
from support.interleave import Stepper, every_order, runner_for
from support.kinds import MONGOMOCK, PYMONGO
from support.stores import Store

from docstore_saver import calls
from docstore_saver.calls import Plan
from docstore_saver.codec import Codec
from docstore_saver.dialects import MONGODB
from docstore_saver.documents import now
from docstore_saver.errors import IncompleteCheckpointError
from docstore_saver.plans import retention
from docstore_saver.state import Scope, SharedState

pytestmark = pytest.mark.kinds(PYMONGO, MONGOMOCK)
GRACE = timedelta(hours=1)
VALUE = "v" * 400
MOST_ORDERS = 150
"""Threads to race in: every order has one of its own, so that none is spoilt by another."""


def collect(thread: str) -> Plan[None]:
    """Delete the parent, then every value of the thread that no checkpoint refers to."""
    of_thread = {"tenant": "", "thread_id": thread}
    yield calls.delete_many("checkpoints", {**of_thread, "parent_checkpoint_id": None})
    rows = yield calls.find("checkpoints", of_thread)
    used = {ref["value_id"] for row in rows for ref in row["refs"]}
    old = {"touched_at": {"$lt": now() - GRACE}}
    for head in (yield calls.find("values", {**of_thread, "n": 0, **old})):
        if head["value_id"] not in used and (yield calls.delete_many("values", {"_id": head["_id"], **old})):
            yield calls.delete_many("values", {**of_thread, "value_id": head["value_id"]})


def sweep(thread: str) -> Plan[None]:
    """The same by the collector that the package has."""
    yield calls.delete_many("checkpoints", {"tenant": "", "thread_id": thread, "parent_checkpoint_id": None})
    state = SharedState(MONGODB)
    scope = Scope(state, Codec(JsonPlusSerializer()), {}, 64, "auto", frozenset())
    yield from retention.sweep_thread(scope, "", thread, GRACE)


COLLECTORS = {"as the format says": collect, "sweep": sweep}


async def prepare(env: Env, writer: Store, thread: str) -> Any:
    """A parent with an old value of three parts, loaded by the process that will put its child."""
    other = env.open(inline_limit=64)
    at = await other.put(config(thread), checkpoint(0, {"big": VALUE, "x": 0}), metadata())
    env.raw["docstore_values"].update_many({"thread_id": thread, "n": 0}, {"$set": {"touched_at": now() - 2 * GRACE}})
    await writer.get(at)
    return at


def child(writer: Store, at: Any, *, gives_value: bool) -> Plan[None]:
    state = {"x": 1, "big": VALUE} if gives_value else {"x": 1}
    new = checkpoint(1, state, {"big": 1, "x": 2})
    return writer.saver._plan_put(at, new, metadata(1), {"x": 2})[1]  # type: ignore[no-any-return]


async def race(env: Env, collector: str, *, gives_value: bool) -> list[str]:
    """What a reader finds after each order: the whole child, or the error that refused it; never a hole."""
    writer, reader = env.open(inline_limit=64), env.open()
    runner = runner_for(writer.client, env.database, writer.saver._names)
    threads = [f"t{number}" for number in range(MOST_ORDERS)]
    parents = iter([(thread, await prepare(env, writer, thread)) for thread in threads])
    started: list[str] = []

    def start() -> tuple[Stepper, Stepper]:
        thread, at = next(parents)
        started.append(thread)
        put = Stepper(child(writer, at, gives_value=gives_value), runner)
        return put, Stepper(COLLECTORS[collector](thread), runner)

    return [await outcome(reader, started[-1], put) for put, _ in every_order(start)]


async def outcome(reader: Store, thread: str, put: Stepper) -> str:
    if put.failure is not None:
        return type(put.failure).__name__
    try:
        found = await reader.get(config(thread))
    except IncompleteCheckpointError:
        return "dangling"
    return "whole" if found.checkpoint["channel_values"] == {"x": 1, "big": VALUE} else "wrong"


@pytest.mark.parametrize("collector", COLLECTORS)
@scenario
async def test_a_child_that_has_the_value_is_whole_in_every_order(env: Env, collector: str) -> None:
    outcomes = await race(env, collector, gives_value=True)
    assert set(outcomes) == {"whole"}
    assert len(outcomes) >= 8


@pytest.mark.parametrize("collector", COLLECTORS)
@scenario
async def test_a_child_without_the_value_is_whole_or_refused(env: Env, collector: str) -> None:
    outcomes = await race(env, collector, gives_value=False)
    assert set(outcomes) == {"whole", "IncompleteCheckpointError"}


@pytest.mark.parametrize("collector", COLLECTORS)
@scenario
async def test_without_the_touch_references_would_dangle(
    env: Env, monkeypatch: pytest.MonkeyPatch, collector: str
) -> None:
    """The proof that the tests above can fail."""
    monkeypatch.setattr(SharedState, "is_fresh", lambda *_: True)
    assert "dangling" in await race(env, collector, gives_value=True)
