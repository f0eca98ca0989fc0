"""Random histories on InMemorySaver and on ours: every answer must agree.

Where InMemorySaver is not the measure: it orders a listing thread by thread and namespace by namespace, drops values
outside `new_versions`, and shares blobs between equal versions of forks. So the histories use versions that are unique
in a thread, and listings over several namespaces are compared without order.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import checkpoint_id, config
from support.env import Env
from support.stores import Store

THREADS = ("a", "b")
NAMESPACES = ("", "sub:1")
CHANNELS = ("x", "y", "delta", "ephemeral", "quiet")
SPECIAL = ("__error__", "__interrupt__", "__resume__", "__scheduled__")
METADATA = {"source": ["input", "loop"], "score": [1, 1.0, True, None, 0.5], "tag": ["u", ["u"], {"k": 1}]}
LARGE = 0.5  # stands for a value over the inline_limit below; short in a printed history

# Most of a history happens in one place, or it would be too thin to go wrong.
at = st.sampled_from([*[("a", "")] * 6, ("a", "sub:1"), ("b", ""), ("b", "sub:1")])
pick = st.integers(0, 10**6)
values = st.one_of(
    st.integers(-5, 5), st.none(), st.just(LARGE), st.text(max_size=3), st.lists(st.integers(-9, 9), max_size=2)
)
channel_sets = st.sets(st.sampled_from(CHANNELS), max_size=3)
writes = st.lists(st.tuples(st.sampled_from((*CHANNELS, *SPECIAL)), values), max_size=4)
task_writes = st.tuples(st.sampled_from("tuvw"), st.sampled_from(["", "~1", "~2"]), writes)
metadata_items = st.fixed_dictionaries({}, optional={key: st.sampled_from(some) for key, some in METADATA.items()})


class Histories(RuleBasedStateMachine):
    """Both savers, and what has been stored so far."""

    env: Env
    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.memory = InMemorySaver()
        self.ours = self.store.over(self.store.saver.for_tenant(uuid.uuid4().hex))
        self.stored: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self.clock = 0
        self.strings = True

    @initialize(strings=st.booleans(), seed=pick)
    def load(self, strings: bool, seed: int) -> None:
        """A history to start from: what is rare in a few drawn steps (the same task twice, forks) is common here."""
        self.strings = strings
        draw = random.Random(seed)
        places = [("a", "")] * 6 + [("a", "sub:1"), ("b", "")]
        for _ in range(10):
            changed = set(draw.sample(CHANNELS, draw.randrange(4)))
            more = {key: draw.choice(some) for key, some in METADATA.items() if draw.random() < 0.5}
            self._put(draw.choice(places), draw.randrange(10**6), changed, draw.choice([1, LARGE, None]), more, 0)
            tasks = [(draw.choice("tuvw"), draw.choice(["", "~1", "~2"]), self._writes(draw)) for _ in range(3)]
            self._put_writes(draw.choice(places), draw.randrange(10**6), tasks)

    @staticmethod
    def _writes(draw: random.Random) -> list[tuple[str, Any]]:
        channels = [draw.choice((*CHANNELS, *SPECIAL)) for _ in range(draw.randrange(4))]
        return [(channel, draw.choice([LARGE, *range(9)])) for channel in channels]

    def next_version(self, old: Any) -> Any:
        self.clock += 1
        if self.strings:
            return self.store.saver.get_next_version(f"{self.clock:032}.0", None)
        return self.clock

    @rule(at=at, parent=pick, changed=channel_sets, value=values, more=metadata_items, skew=st.integers(0, 6))
    def put(self, at: Any, parent: int, changed: set[str], value: Any, more: Any, skew: int) -> None:
        self._put(at, parent, changed, value, more, skew)

    def _put(self, at: Any, parent: int, changed: set[str], value: Any, more: Any, skew: int) -> None:
        value = "v" * 300 if value == LARGE else value
        known = self.stored.setdefault(at, {})
        parents = [None, *sorted(known), "missing"]
        parent_id = parents[parent % len(parents)]
        before = known.get(parent_id or "", {"versions": {}, "values": {}})
        new = {name: self.next_version(None) for name in changed}
        versions = {**before["versions"], **new}
        # A channel may go unmentioned while its version stands: a snapshot, or a value from before it became a delta.
        silent = ("ephemeral", "delta", *(["quiet"] if self.clock % 2 else []))
        state = {name: kept for name, kept in before["values"].items() if name not in silent}
        for name in changed - {"delta"}:
            if not (name == "ephemeral" and self.clock % 2):
                state[name] = value
        if "delta" in changed and self.clock % 3 == 0:
            state["delta"] = _DeltaSnapshot([value])
        self.clock += 1
        # Ids run backwards now and then, as those of two hosts do.
        own_id = checkpoint_id(self.clock * 8 - skew * 8 if skew > 3 else self.clock * 8)
        if own_id in known:
            return
        self._put_both(at, parent_id, own_id, state, versions, new, more)

    @rule(at=at, which=pick)
    def put_again(self, at: Any, which: int) -> None:
        known = self.stored.get(at)
        if known:
            own_id = sorted(known)[which % len(known)]
            self._put_both(at, *known[own_id]["arguments"])

    def _put_both(self, at: Any, parent_id: Any, own_id: str, state: Any, versions: Any, new: Any, more: Any) -> None:
        checkpoint = {
            "v": 4,
            "id": own_id,
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": state,
            "channel_versions": versions,
            "versions_seen": {"n": new},
            "updated_channels": sorted(new),
        }
        where = config(*at, id=parent_id)
        metadata = {"step": len(self.stored[at]), "parents": {}, **more}
        expected = self.memory.put(where, checkpoint, metadata, new)
        assert self._do(self.ours.put(where, checkpoint, metadata, new)) == expected
        arguments = (parent_id, own_id, state, versions, new, more)
        self.stored[at][own_id] = {"versions": versions, "values": state, "arguments": arguments}

    @rule(at=at, which=pick, tasks=st.lists(task_writes, min_size=1, max_size=4))
    def put_writes(self, at: Any, which: int, tasks: Any) -> None:
        self._put_writes(at, which, tasks)

    def _put_writes(self, at: Any, which: int, tasks: Any) -> None:
        ids = [*sorted(self.stored.get(at, {})), checkpoint_id(7)]
        where = config(*at, id=ids[which % len(ids)])
        for task, path, drawn in tasks:
            some = [(channel, "v" * 300 if value == LARGE else value) for channel, value in drawn]
            self.memory.put_writes(where, some, task, path)
            self._do(self.ours.put_writes(where, some, task, path))

    @rule(at=at, which=pick)
    def get_tuple(self, at: Any, which: int) -> None:
        ids: list[Any] = [None, "", "missing", *sorted(self.stored.get(at, {}))]
        where = config(*at, id=ids[which % len(ids)])
        assert plain(self._do(self.ours.get(where))) == plain(self.memory.get_tuple(where))

    @rule(
        at=st.tuples(st.sampled_from([*THREADS, None]), st.sampled_from([*NAMESPACES, None])),
        which=pick,
        before=st.booleans(),
        limit=st.none() | st.integers(0, 4),
        filter=metadata_items,
    )
    def list(self, at: Any, which: int, before: bool, limit: Any, filter: Any) -> None:
        thread, ns = at
        where = None if thread is None else {"configurable": {"thread_id": thread}}
        if where is not None and ns is not None:
            where["configurable"]["checkpoint_ns"] = ns
        ids = sorted(key for known in self.stored.values() for key in known)
        bound = config("any", id=ids[which % len(ids)]) if before and ids else None
        self._agree_on_list(where, filter, bound, limit)

    def _agree_on_list(self, where: Any, filter: Any, bound: Any, limit: Any) -> None:
        everything = [plain(item) for item in self.memory.list(where, filter=filter, before=bound)]
        everything.sort(key=lambda item: item["id"], reverse=True)
        got = [plain(item) for item in self._do(self.ours.list(where, filter=filter, before=bound, limit=limit))]
        assert [item["id"] for item in got] == [item["id"] for item in everything][:limit]
        if where is not None and "checkpoint_ns" in where["configurable"]:
            assert got == everything[:limit]
        else:
            assert all(item in everything for item in got)

    @rule(at=at, which=pick, channels=st.lists(st.sampled_from(CHANNELS), max_size=3))
    def history(self, at: Any, which: int, channels: Any) -> None:
        ids: list[Any] = [None, "missing", *sorted(self.stored.get(at, {}))]
        self._agree_on_history(config(*at, id=ids[which % len(ids)]), channels)

    def _agree_on_history(self, where: Any, channels: Any) -> None:
        expected = self.memory.get_delta_channel_history(config=where, channels=channels)
        assert self._do(self.ours.history(where, channels)) == expected

    @rule(thread=st.sampled_from(THREADS), really=st.integers(0, 4))
    def delete_thread(self, thread: str, really: int) -> None:
        if really == 0:
            self.memory.delete_thread(thread)
            self._do(self.ours.delete_thread(thread))
            self.stored = {at: known for at, known in self.stored.items() if at[0] != thread}

    def teardown(self) -> None:
        """However it came about: in the end everything agrees."""
        for at, known in self.stored.items():
            self._agree_on_list(config(*at), {}, None, None)
            for own_id in known:
                self._agree_on_history(config(*at, id=own_id), CHANNELS)
        for name, some in METADATA.items():
            for value in some:
                self._agree_on_list(None, {name: value}, None, None)

    def _do(self, coroutine: Any) -> Any:
        return self.env.do(coroutine)


def plain(item: Any) -> Any:
    """A tuple as data; an explicit id makes InMemorySaver echo the config it was given."""
    if item is None:
        return None
    where = item.config["configurable"]
    parent = item.parent_config["configurable"]["checkpoint_id"] if item.parent_config else None
    return {
        "thread": where["thread_id"],
        "ns": where["checkpoint_ns"],
        "id": item.checkpoint["id"],
        "checkpoint": item.checkpoint,
        "metadata": item.metadata,
        "parent": parent,
        "writes": item.pending_writes,
    }


def test_answers_agree_with_in_memory_saver(env: Env, examples: int) -> None:
    with env.session():
        bound = type("Bound", (Histories,), {"env": env, "store": env.open(inline_limit=200)})
        run_state_machine_as_test(
            bound,
            settings=settings(
                max_examples=examples,
                stateful_step_count=20,
                deadline=None,
                # Shrinking replays hundreds of histories; a failure prints its steps as they were drawn.
                phases=[Phase.generate],
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.fixture(params=[12])
def examples(request: pytest.FixtureRequest) -> int:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.long
@pytest.mark.parametrize("examples", [1500], indirect=True)
def test_answers_agree_with_in_memory_saver_for_long(env: Env, examples: int) -> None:
    test_answers_agree_with_in_memory_saver(env, examples)
