"""Public bug reports about pending writes: what a task leaves at a checkpoint before the next one exists."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.types import Command, interrupt
from support.builders import checkpoint, config, metadata, pipeline, written
from support.env import Env, scenario


@scenario
async def test_a_task_without_writes_leaves_nothing_and_sends_nothing(env: Env) -> None:
    """An empty list of writes is no error and no batch for the driver (langgraphjs #2556)."""
    store = env.open()
    at = await store.put(config(), checkpoint(0), metadata())
    with env.commands.count() as sent:
        await store.put_writes(at, [], "silent")
    assert sent == []
    assert (await store.get(at)).pending_writes == []
    await store.put_writes(at, [("x", "said")], "loud")
    await store.put_writes(at, [], "loud")
    assert (await store.get(at)).pending_writes == [("loud", "x", "said")]


@scenario
async def test_writes_come_in_the_order_of_task_paths(env: Env) -> None:
    """Pending writes are sorted by task path, then task id, then place, in get and in list (langgraph #8382)."""
    store = env.open()
    at = await store.put(config(), checkpoint(0), metadata())
    tasks = [("a-task", "~pull, 0000000009"), ("q-task", "~pull, 0000000005"), ("z-task", "~pull, 0000000002")]
    # The ids ascend where the paths descend, and two tasks share a path.
    for task, path in [*tasks, ("b-task", "~pull, 0000000005")]:
        await store.put_writes(at, [("x", f"{task} {n}") for n in range(3)], task, path)
    expected = [f"{task} {n}" for task in ("z-task", "b-task", "q-task", "a-task") for n in range(3)]
    for reader in (store, env.open()):
        assert written(await reader.get(at)) == expected
        assert written(await reader.get(config())) == expected
        assert [written(item) for item in await reader.list(config())] == [expected]


@scenario
async def test_the_first_ordinary_write_and_the_last_special_one_win(env: Env) -> None:
    """A task that is stored again keeps its values; interrupts, errors and resumes are replaced (langgraph #2636)."""
    store = env.open()
    at = await store.put(config(), checkpoint(0), metadata())
    for attempt in ("first", "second", "third"):
        again = env.open()
        await again.put_writes(at, [("x", f"x {attempt}"), ("y", f"y {attempt}")], "worker")
        for special in WRITES_IDX_MAP:
            await again.put_writes(at, [(special, [attempt])], f"task of {special}")
    found = (await store.get(at)).pending_writes
    assert len(found) == 2 + len(WRITES_IDX_MAP)
    assert {(task, channel): value for task, channel, value in found} == {
        ("worker", "x"): "x first",
        ("worker", "y"): "y first",
        **{(f"task of {special}", special): ["third"] for special in WRITES_IDX_MAP},
    }


@scenario
async def test_a_retry_under_another_task_path_is_the_same_write(env: Env) -> None:
    """A write that comes again with another path is no duplicate key, and stays one write (langgraph #6040)."""
    store = env.open()
    at = await store.put(config(), checkpoint(0), metadata())
    for path in ("", "~pull, node", "~push, 0", ""):
        await store.put_writes(at, [("x", "once"), ("y", 2)], "task", path)
        assert (await store.get(at)).pending_writes == [("task", "x", "once"), ("task", "y", 2)]


@scenario
async def test_a_node_asks_twice_in_a_store_with_a_ttl(env: Env) -> None:
    """The second interrupt of a task replaces the first also with a ttl (langgraph #6040, langchain-mongodb #207)."""

    def ask(_: Any) -> Any:
        return {"answer": [interrupt("name?"), interrupt("age?"), interrupt("sure?")]}

    where = config()
    for value in ({"count": 0}, Command(resume="Ada"), Command(resume=36), Command(resume=True)):
        store = env.open(ttl=1800)
        outcome = await store.invoke(pipeline(store, ask=ask), value, where)
    assert outcome["answer"] == ["Ada", 36, True]
    assert "__interrupt__" not in outcome


@scenario
async def test_many_writes_of_one_call_keep_their_order(env: Env) -> None:
    """A call with more writes than a batch holds loses none, and 10 comes after 9 (langchain-aws #1091)."""
    # The embedded store compares each new document with every older one.
    count = 1500 if env.kind.needs_server else 200
    store = env.open()
    at = await store.put(config(), checkpoint(0), metadata())
    await store.put_writes(at, [(f"channel {n % 7}", n) for n in range(count)], "task", "~pull, all")
    expected = [("task", f"channel {n % 7}", n) for n in range(count)]
    assert (await store.get(at)).pending_writes == expected
    assert (await store.list(config()))[0].pending_writes == expected


@scenario
async def test_empty_values_are_values(env: Env) -> None:
    """None, zeros and empty containers are stored as themselves, in state and in writes (langchain-aws #766)."""
    empty = {"a": None, "b": 0, "c": 0.0, "d": False, "e": "", "f": b"", "g": [], "h": {}, "i": [None], "j": {"": None}}
    # Once inside the documents and once stored apart.
    for n, inline_limit in enumerate((16 * 1024, 0)):
        store = env.open(inline_limit=inline_limit)
        at = await store.put(config(f"t{n}"), checkpoint(n, empty), metadata())
        await store.put_writes(at, list(empty.items()), "task")
        found = await env.open().get(at)
        in_writes = {channel: value for _, channel, value in found.pending_writes}
        for values in (found.checkpoint["channel_values"], in_writes):
            assert values == empty
            assert {name: type(value) for name, value in values.items()} == {name: type(empty[name]) for name in empty}
        assert list(in_writes) == list(empty)
