"""Whatever was pruned, swept, deleted and copied: each checkpoint that is left equals its twin that was never pruned.

Random histories meet random sequences of operations. What must be visible, and what may lie in the store behind it, a
small model says (`support.histories`); what each checkpoint holds, an InMemorySaver.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.builders import whole_thread
from support.env import Env
from support.histories import GUESTS, Node, Thread, Twins, copy_memory, load
from support.kinds import ASYNC_PYMONGO, MONGOMOCK, PYMONGO, Kind
from support.stores import Store

from docstore_saver.plans import write

COLLECTIONS = ("docstore_checkpoints", "docstore_writes", "docstore_values")
TIMES = ("created_at", "hidden_at", "touched_at")
SEQUENCES = 10
PASSING = timedelta(hours=2)
OF_THREADS = {"thread_id": {"$exists": True}}
TTL = 10_000_000


class Play:
    """One sequence of operations on a history that lies in the store."""

    def __init__(self, env: Env, store: Store, loaded: Twins, seed: int, ttl: int | None) -> None:
        self.env, self.draw, self.ttl = env, random.Random(seed), ttl
        threads = copy.deepcopy(loaded.threads)
        for thread in threads.values():
            thread.draw = self.draw
        self.twins = Twins(store, copy_memory(loaded.memory), threads)
        self.now, self.copies, self.steps = 0, 0, [f"sequence {seed}"]

    @property
    def store(self) -> Store:
        return self.twins.store

    def new_process(self) -> None:
        """A saver that knows nothing but what it reads."""
        options = {"database": self.env.database, "inline_limit": 64, "auto_setup": False, "ttl": self.ttl}
        self.twins.store = self.store.over(self.store.kind.face(self.store.client, **options))

    async def run(self) -> None:
        operations: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *[self.prune] * 5,
            *[self.delete_for_runs] * 4,
            *[self.sweep] * 2,
            *[self.copy_thread] * 2,
            *[self.time_passes] * 3,
            *[self.go_on] * 6,
            *[self.expire] * (6 if self.ttl else 0),
        ]
        for _ in range(self.draw.randint(1, 6)):
            if self.draw.random() < 0.3:
                self.new_process()
            operation = self.draw.choice(operations)
            await operation()
            if operation == self.delete_for_runs and self.draw.random() < 0.5:
                await self.go_on()
            self.require_whole_in_store()
            if self.draw.random() < 0.3:
                await self.require_equal()
        await self.require_equal()
        await self.sweep_all()
        await self.require_equal()
        self.require_whole_in_store()
        self.require_nothing_left_over()
        assert (await self.store.call("check", grace=0)).is_ok

    # The operations.

    def grace(self) -> dict[str, Any]:
        return {"grace": 0} if self.draw.random() < 0.5 else {}

    def told(self, name: str, **arguments: Any) -> dict[str, Any]:
        self.steps.append(f"{name}{arguments}")
        return arguments

    async def prune(self) -> None:
        threads = self.draw.sample(sorted(self.twins.threads), self.draw.randint(1, len(self.twins.threads)))
        last = self.draw.choice([1, 1, 1, 2, 5])
        hours = self.draw.choice([None, None, self.draw.randint(0, 60)])
        forks = self.draw.random() < 0.3
        keep: dict[str, Any] = {} if last == 1 else {"keep_last": last}
        keep |= {} if hours is None else {"older_than": timedelta(hours=hours + 0.5)}
        keep |= {"keep_forks": True} if forks else {}
        arguments = self.told("prune", thread_ids=threads, **keep, **self.grace())
        going = {
            name: self.twins.threads[name].prune(self.now, last, None if hours is None else hours + 0.5, forks)
            for name in threads
        }
        removed = await self.as_foretold("prune", arguments)
        assert removed.hidden == sum(map(len, going.values()))
        for name in threads:
            self.twins.threads[name].hide(going[name], self.now)
            self.swept(self.twins.threads[name], arguments)

    async def delete_for_runs(self) -> None:
        names = [*GUESTS, *GUESTS, *(f"run-{n}" for n in range(7))]
        runs = set(self.draw.sample(names, self.draw.randint(1, 3)))
        arguments = self.told("delete_for_runs", run_ids=sorted(runs), **self.grace())
        removed = await self.as_foretold("delete_for_runs", arguments)
        hidden = 0
        for thread in self.twins.threads.values():
            if not has_any_of(thread, runs):
                continue
            thread.hide_writes(runs, self.now)
            going = [node.key for node in thread.visible() if node.run in runs]
            thread.hide(going, self.now)
            hidden += len(going)
            self.swept(thread, arguments)
        assert removed.hidden == hidden

    async def as_foretold(self, name: str, arguments: dict[str, Any]) -> Any:
        """Ask first, now and then: that changes nothing, and the operation does what was said."""
        if self.draw.random() < 0.5:
            return await self.store.call(name, **arguments)
        before = self.documents()
        foretold = await self.store.call(name, **arguments, dry_run=True)
        assert self.documents() == before
        removed = await self.store.call(name, **arguments)
        assert removed.hidden == foretold.hidden
        if "grace" in arguments:
            assert removed == foretold
        return removed

    async def sweep(self) -> None:
        threads = sorted(self.twins.threads)
        some = self.draw.sample(threads, self.draw.randint(1, len(threads)))
        arguments = self.told("sweep", thread_ids=some, **self.grace())
        await self.store.call("sweep", **arguments)
        for name in some:
            self.swept(self.twins.threads[name], arguments)

    async def sweep_all(self) -> None:
        arguments = self.told("sweep", thread_ids=sorted(self.twins.threads), grace=0)
        await self.store.call("sweep", **arguments)
        for thread in self.twins.threads.values():
            self.swept(thread, arguments)

    def swept(self, thread: Thread, arguments: dict[str, Any]) -> None:
        self.twins.forget(thread, list(thread.sweep(self.now if "grace" in arguments else self.now - 1)))

    async def copy_thread(self) -> None:
        source = self.draw.choice(sorted(self.twins.threads))
        self.copies += 1
        target = f"copy-{self.copies}"
        self.told("copy_thread", source=source, target=target)
        await self.store.call("copy_thread", source, target)
        if self.twins.threads[source].visible():
            self.twins.copy(self.twins.threads[source], target)

    async def expire(self) -> None:
        """Some threads are as old as a ttl lets none become: they go whole, and of the others nothing does."""
        some = self.draw.sample(sorted(self.twins.threads), self.draw.randint(0, len(self.twins.threads) - 1))
        self.told("expire", threads=some)
        for name in COLLECTIONS:
            long_ago = {"$set": {"active_at": datetime(2020, 1, 1)}}  # noqa: DTZ001  # as BSON has it
            self.env.raw[name].update_many({"thread_id": {"$in": some}}, long_ago)
        self.new_process()
        for name in some:
            assert await self.store.list(whole_thread(name)) == []
        others = [[document for document in kept if document["thread_id"] not in some] for kept in self.documents()]
        with_checkpoints = [name for name in some if self.twins.threads[name].present()]
        assert await self.store.call("expire") == len(with_checkpoints)
        assert self.documents() == others
        for name in some:
            del self.twins.threads[name]
            self.twins.memory.delete_thread(name)

    async def time_passes(self) -> None:
        """Two hours, for what lies in the store and for all processes: those of before are gone."""
        self.told("time_passes")
        for name, documents in zip(COLLECTIONS, self.documents(), strict=True):
            older = [
                {**document, **{time: document[time] - PASSING for time in TIMES if document.get(time)}}
                for document in documents
            ]
            store_again(self.env, name, older)
        self.now += 2
        self.new_process()

    async def go_on(self) -> None:
        """Runs go on from visible checkpoints, and from one that was hidden since they read it."""
        thread = self.twins.threads[self.draw.choice(sorted(self.twins.threads))]
        for _ in range(self.draw.randint(1, 4)):
            known = [*thread.visible()[: self.draw.choice([1, 3, 99])], *self.just_hidden(thread)]
            known = [node for node in known if node.is_visible or node.known]
            if not known:
                return
            touched = [node for node in known if node.has_hidden_writes]
            node = self.draw.choice(touched if touched and self.draw.random() < 0.8 else known)
            run = self.draw.choice([*GUESTS, "run-2", "run-7", "run-8"])
            # Whatever a saver was not told to be a delta channel it need not keep for a child that tells.
            if node.is_visible and (not node.known or self.draw.random() < 0.5):
                self.told("put_writes", thread=thread.id, ns=node.ns, id=node.id, run=run)
                await self.twins.put_writes(thread, node, run)
            else:
                new = await self.twins.put(thread, node.ns, node, run, self.now)
                self.told("put", thread=thread.id, ns=node.ns, parent=node.id, id=new.id, run=run)

    def just_hidden(self, thread: Thread) -> list[Node]:
        """Where a run that began before may still go on: nothing of it is removed."""
        return [node for node in thread.present() if node.hidden_at == self.now and not node.is_lineage][:2]

    # What must be true.

    def documents(self) -> list[Any]:
        return [stored(self.env, name) for name in COLLECTIONS]

    async def require_equal(self) -> None:
        """Every checkpoint that should be there, and no other.

        Histories cost most: those that an operation may have touched are compared, and a few of the others.
        """
        for thread in self.twins.threads.values():
            where: Any = whole_thread(thread.id)
            twins = {place(item): item for item in self.twins.memory.list(where)}
            items = await self.store.list(where)
            assert {place(item) for item in items} == {node.key for node in thread.visible()}, thread.id
            unsafe = thread.behind_hidden()
            for item in items:
                self.require_twin(thread, item, twins[place(item)])
                if place(item) in unsafe or self.draw.random() < 0.1:
                    await self.require_same_history(thread, item)

    def require_twin(self, thread: Thread, item: Any, twin: Any) -> None:
        about = f"{thread.id}: {place(item)}"
        assert item.checkpoint == twin.checkpoint, about
        assert item.metadata == twin.metadata, about
        assert item.parent_config == twin.parent_config, about
        assert item.pending_writes == self.twins.pending(thread, thread.nodes[place(item)]), about

    async def require_same_history(self, thread: Thread, item: Any) -> None:
        node = thread.nodes[place(item)]
        assert node.rebuilt <= item.checkpoint["channel_versions"].keys() - item.checkpoint["channel_values"].keys()
        found = await self.store.history(item.config, sorted(node.rebuilt))
        assert found == self.twins.history(thread, node), item.config

    def require_whole_in_store(self) -> None:
        """What is visible or was hidden within grace is there with its writes; of what is left, no checkpoint more."""
        rows, writes, _ = self.documents()
        for thread in self.twins.threads.values():
            own = {(row["checkpoint_ns"], row["checkpoint_id"]) for row in rows if row["thread_id"] == thread.id}
            assert own == {node.key for node in thread.present()}, thread.id
            kept = {spot_of(write) for write in writes if write["thread_id"] == thread.id}
            whole = [node for node in thread.present() if not node.is_lineage]
            assert {(*node.key, *spot) for node in whole for spot in node.writes} <= kept, thread.id

    def require_nothing_left_over(self) -> None:
        """After a sweep without grace: what is visible, what it is rebuilt from, and nothing else."""
        rows, writes, values = self.documents()
        for thread in self.twins.threads.values():
            needed = thread.needs(thread.visible())
            kept = [write for write in writes if write["thread_id"] == thread.id]
            assert {spot_of(write) for write in kept} == {
                (*node.key, *spot)
                for node in thread.present()
                for spot, write in node.writes.items()
                if write.hidden_at is not None or node.is_visible or write.channel in needed.get(node.key, ())
            }
        for row in rows:
            if row.get("lineage") is not None:
                assert "metadata" not in row
                assert ("values" in row) == has_inline_seed(row)
        used = {(row["thread_id"], ref["value_id"]) for row in rows for ref in row["refs"] if is_used(row, ref)}
        used |= {(write["thread_id"], write["ref"]["value_id"]) for write in writes if write["ref"]}
        assert {(value["thread_id"], value["value_id"]) for value in values} == used


def is_used(row: dict[str, Any], ref: dict[str, Any]) -> bool:
    """Of what is kept for its descendants only the seeds count, and what tells their versions."""
    kept = row.get("lineage")
    if kept is None or ref["field"] == "core":
        return True
    if ref["field"] == "channel":
        return ref["channel"] in kept
    return ref["field"] == "values" and has_inline_seed(row)


def has_inline_seed(row: dict[str, Any]) -> bool:
    own = {ref["channel"] for ref in row["refs"] if ref["field"] == "channel"}
    return not set(row["lineage"]) <= own


def place(item: Any) -> tuple[str, str]:
    return item.config["configurable"]["checkpoint_ns"], item.checkpoint["id"]


def spot_of(write: dict[str, Any]) -> tuple[str, str, str, int]:
    return write["checkpoint_ns"], write["checkpoint_id"], write["task_id"], write["idx"]


def has_any_of(thread: Thread, runs: set[str]) -> bool:
    """Whether the store holds anything of these runs in the thread; else the operation passes it over."""
    return any(
        node.run in runs or any(write.run in runs for write in node.writes.values()) for node in thread.present()
    )


def stored(env: Env, name: str) -> list[dict[str, Any]]:
    """All documents but the store's settings, in one order."""
    return sorted(env.raw[name].find(OF_THREADS), key=lambda document: document["_id"])


def store_again(env: Env, name: str, documents: list[dict[str, Any]]) -> None:
    env.raw[name].delete_many(OF_THREADS)
    if documents:
        env.raw[name].insert_many(documents)


class History:
    """A history in the store, to be played with again and again."""

    def __init__(self, env: Env, seed: int, ttl: int | None = None) -> None:
        self.env, self.seed, self.ttl = env, seed, ttl
        for name in COLLECTIONS:
            env.raw[name].delete_many({})
        self.store = env.open(inline_limit=64, ttl=ttl)
        self.loaded = env.do(load(self.store, seed))
        self.documents = {name: stored(env, name) for name in COLLECTIONS}
        if ttl:
            for name in COLLECTIONS:
                env.raw[name].drop_index("ttl")  # else the server takes what expire should

    def play(self, sequence: int) -> None:
        for name, documents in self.documents.items():
            store_again(self.env, name, copy.deepcopy(documents))
        play = Play(self.env, self.store, self.loaded, self.seed * 1000 + sequence, self.ttl)
        play.new_process()
        try:
            self.env.do(play.run())
        except BaseException as error:
            error.add_note("\n".join([f"history {self.seed}", *play.steps]))
            raise


def play_all(env: Env, monkeypatch: pytest.MonkeyPatch, seed: int, sequences: int, ttl: int | None = None) -> None:
    with env.session(), monkeypatch.context() as patch:
        if seed % 3 == 0:
            # Documents are so small that all their fields become values of their own.
            patch.setattr(write, "INLINE_BYTES", 40)
            patch.setattr(write, "_WORTH_MOVING", 30)
        history = History(env, seed, ttl)
        for sequence in range(sequences):
            history.play(sequence)


def few(kind: Kind) -> int:
    return {PYMONGO.name: 5, ASYNC_PYMONGO.name: 2}.get(kind.name, 7)


@pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, MONGOMOCK)
def test_what_is_left_equals_its_twin(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(few(env.kind)):
        play_all(env, monkeypatch, seed, SEQUENCES)


@pytest.mark.kinds(MONGOMOCK)
def test_with_a_time_to_live_too(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    play_all(env, monkeypatch, 10, SEQUENCES, TTL)


@pytest.mark.long
@pytest.mark.kinds(MONGOMOCK)
@pytest.mark.parametrize("seed", range(1000, 1250))
def test_what_is_left_equals_its_twin_for_long(env: Env, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    play_all(env, monkeypatch, seed, 20, TTL if seed % 10 == 0 else None)
