"""Delta history: three strategies, one answer, and LangGraph's own walk as the measure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import chain, checkpoint, checkpoint_id, config, metadata
from support.env import Env, scenario
from support.kinds import ON_MONGOD
from support.stores import Store

from docstore_saver.errors import IncompleteCheckpointError
from docstore_saver.plans import delta

STRATEGIES = ["auto", "graph_lookup", "scan"]
CHANNELS = ["log", "notes", "plain", "never"]


@dataclass
class History:
    """A random thread: forks, jumps back, gaps, ids out of order, and with `cyclic` circles of parents."""

    seed: int
    cyclic: bool = False
    length: int = 40
    ids: list[str] = field(default_factory=list)

    async def load(self, store: Store) -> None:
        draw = random.Random(self.seed)
        order = list(range(1, self.length + 1))
        for at in range(0, self.length - 1, 7):
            order[at], order[at + 1] = order[at + 1], order[at]
        versions: dict[str, dict[str, int]] = {}
        for n, place in enumerate(order):
            own_id, parent = checkpoint_id(place), self._parent(draw, order, n)
            values, new = self._values(draw, n)
            versions[own_id] = {**versions.get(parent or "", {}), **new}
            counters = {"log": (1, n % 5)} if draw.random() < 0.2 else {}
            where = config("t", id=parent)
            stored = await store.put(
                where,
                {**checkpoint(place, values, versions[own_id]), "id": own_id},
                metadata(n, **({"counters_since_delta_snapshot": counters} if counters else {})),
                new,
            )
            for task in range(draw.randrange(3)):
                some = [(draw.choice(CHANNELS), f"{n}.{task}.{i}") for i in range(draw.randrange(3))]
                await store.put_writes(stored, some, f"task-{draw.random()}", f"~{draw.randrange(3)}")
            self.ids.append(own_id)

    def _parent(self, draw: random.Random, order: list[int], n: int) -> str | None:
        if n == 0:
            return checkpoint_id(order[5]) if self.cyclic else None
        chance = draw.random()
        if chance < 0.75:
            return self.ids[-1]
        if chance < 0.95:
            return draw.choice(self.ids)
        return "gap" if chance < 0.98 else None

    @staticmethod
    def _values(draw: random.Random, n: int) -> tuple[dict[str, Any], dict[str, int]]:
        values: dict[str, Any] = {}
        if draw.random() < 0.15:
            values["log"] = _DeltaSnapshot([f"snapshot-{n}"])
        if draw.random() < 0.1:
            values["notes"] = ["plain", n]
        if draw.random() < 0.3:
            values["plain"] = n
        changed = {*values, *(name for name in ("log", "notes") if draw.random() < 0.7)}
        return values, dict.fromkeys(changed, 1000 + n)


async def answer(store: Store, where: Any, channels: list[str]) -> Any:
    try:
        return await store.history(where, channels)
    except IncompleteCheckpointError:
        return "incomplete"


async def own_walk(store: Store, where: Any, channels: list[str]) -> Any:
    """LangGraph's default, on our get_tuple."""
    if store.is_async:
        return await BaseCheckpointSaver.aget_delta_channel_history(store.saver, config=where, channels=channels)
    return BaseCheckpointSaver.get_delta_channel_history(store.saver, config=where, channels=channels)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short histories must meet every page border."""
    monkeypatch.setattr(delta, "FIRST_PAGE", 4)
    monkeypatch.setattr(delta, "MOST_PAGE", 8)
    monkeypatch.setattr(delta, "MOST_DEPTH", 3)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("seed", range(6))
@scenario
async def test_strategies_agree_with_langgraphs_walk(env: Env, seed: int) -> None:
    history = History(seed, length=40 if env.kind.needs_server else 25)
    await history.load(env.open(inline_limit=64))
    stores = [env.open(delta_strategy=strategy) for strategy in STRATEGIES]
    targets = random.Random(seed).sample(history.ids, 8)
    for where in [config("t"), config("t", id="missing"), *(config("t", id=target) for target in targets)]:
        answers = [await answer(store, where, CHANNELS) for store in stores]
        assert answers[0] == answers[1] == answers[2]
        if answers[0] != "incomplete":
            assert answers[0] == await own_walk(stores[0], where, CHANNELS)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("seed", range(100, 103))
@scenario
async def test_a_circle_of_parents_ends(env: Env, seed: int) -> None:
    """LangGraph's walk would go round for ever; the three end before the ancestor that they have met."""
    history = History(seed, cyclic=True, length=20)
    await history.load(env.open())
    stores = [env.open(delta_strategy=strategy) for strategy in STRATEGIES]
    for target in history.ids:
        answers = [await answer(store, config("t", id=target), CHANNELS) for store in stores]
        assert answers[0] == answers[1] == answers[2]


@scenario
async def test_a_namespace_sees_only_its_own_chain(env: Env) -> None:
    store = env.open()
    for ns in ("", "sub:1", "$graphLookup"):
        for stored in await chain(store, 4, ns=ns, values=lambda _: {}):
            await store.put_writes(stored, [("log", ns)], "task")
    for strategy in STRATEGIES:
        found = await env.open(delta_strategy=strategy).history(config("t", "sub:1"), ["log"])
        assert [write[2] for write in found["log"]["writes"]] == ["sub:1"] * 3


@scenario
async def test_a_broken_chain_is_an_error_where_state_would_be_lost(env: Env) -> None:
    """An ancestor that is gone must not shorten a delta channel's value; for other channels the walk just ends."""
    store = env.open()
    first = await store.put(config(), checkpoint(0, {"log": _DeltaSnapshot(["a"])}), metadata())
    at = first
    for n in range(1, 4):
        at = await store.put(at, checkpoint(n, {}, {"log": n + 1}), metadata(n), {"log": n + 1})
    env.raw["docstore_checkpoints"].delete_one({"checkpoint_id": checkpoint_id(1)})
    for strategy in STRATEGIES:
        other = env.open(delta_strategy=strategy)
        with pytest.raises(IncompleteCheckpointError, match="'log' is rebuilt from"):
            await other.history(at, ["log"])
        assert (await other.history(at, ["other"]))["other"] == {"writes": []}


# What is sent.


async def straight(store: Store, length: int) -> Any:
    """A snapshot and `length` steps of writes behind it; answers the head."""
    at = await store.put(config(), checkpoint(0, {"log": _DeltaSnapshot(["seed"])}), metadata())
    for n in range(1, length + 1):
        await store.put_writes(at, [("log", n)], "task", "~1")
        at = await store.put(at, checkpoint(n, {}, {"log": n + 1}), metadata(n), {"log": n + 1})
    return at


@pytest.mark.kinds(*ON_MONGOD)
@pytest.mark.parametrize("strategy", ["auto", "scan"])
@scenario
async def test_a_straight_chain_of_100_costs_three_commands(env: Env, strategy: str) -> None:
    head = await straight(env.open(), 100)
    store = env.open(delta_strategy=strategy)
    await store.get(head)
    with env.commands.count() as sent:
        found = await store.history(head, ["log"])
    assert found["log"]["seed"] == _DeltaSnapshot(["seed"])
    assert [write[2] for write in found["log"]["writes"]] == list(range(1, 101))
    assert sorted(env.commands.names(sent)) == ["find checkpoints", "find values", "find writes"]


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_graph_lookup_is_restricted_and_bounded(env: Env) -> None:
    head = await straight(env.open(), 10)
    store = env.open(delta_strategy="graph_lookup")
    with env.commands.count() as sent:
        await store.history(head, ["log"])
    stages = [stage["$graphLookup"] for name, body in sent if name == "aggregate" for stage in body["pipeline"][2:3]]
    assert len(stages) == 1
    restriction = stages[0]["restrictSearchWithMatch"]
    assert {name: restriction[name] for name in ("tenant", "thread_id", "checkpoint_ns")} == {
        "tenant": "",
        "thread_id": "t",
        "checkpoint_ns": "",
    }
    assert stages[0]["maxDepth"] == delta.MOST_DEPTH - 1


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_scan_sends_no_graph_lookup_and_auto_only_behind_a_jump(env: Env) -> None:
    head = await straight(env.open(), 300)
    fork = await env.open().put(
        config(id=checkpoint_id(5)), checkpoint(900, {}, {"log": 1900}), metadata(), {"log": 1900}
    )
    sent_by = {}
    for strategy, where in (("scan", fork), ("auto", head), ("auto", fork)):
        store = env.open(delta_strategy=strategy)
        with env.commands.count() as sent:
            found = await store.history(where, ["log"])
        sent_by[strategy, where is fork] = [name for name, _ in sent]
        assert found["log"]["seed"] == _DeltaSnapshot(["seed"])
    assert "aggregate" not in sent_by["scan", True]
    assert "aggregate" not in sent_by["auto", False]
    assert sent_by["auto", True].count("aggregate") == 1


@pytest.mark.kinds(*ON_MONGOD)
@pytest.mark.parametrize("code", [40324, 40099, 10334, 50])
@scenario
async def test_a_server_that_cannot_look_up_gets_a_scan(env: Env, code: int) -> None:
    head = await straight(env.open(), 10)
    expected = await env.open(delta_strategy="scan").history(head, ["log"])
    store = env.open(delta_strategy="graph_lookup")
    await store.list(config(), limit=1)  # setup is over
    fail = {"failCommands": ["aggregate"], "errorCode": code}
    env.raw.client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=fail)
    try:
        assert await store.history(head, ["log"]) == expected
    finally:
        env.raw.client.admin.command("configureFailPoint", "failCommand", mode="off")
