"""Bad arguments of every method: an InvalidArgumentError that names the argument, no command sent, nothing lost."""

from __future__ import annotations

import enum
import threading
import uuid
from typing import Any

import pytest
from bson import Code
from langgraph.checkpoint.memory import InMemorySaver
from support.builders import checkpoint, checkpoint_id, config, ids, metadata, threads
from support.env import Env, scenario
from support.hostile import (
    LONG,
    NO_IDENTIFIERS,
    NO_MAPPINGS,
    NO_NAMES,
    NO_STRINGS,
    Attempts,
    attack,
    keep_safe,
    nested,
    require_safe,
)
from support.kinds import ASYNC_PYMONGO, EMBEDDED, MONGOMOCK_MOTOR, PYMONGO

from docstore_saver.errors import InvalidArgumentError

# Arguments are checked before a client is asked for anything: Motor's are those of AsyncMongoClient.
pytestmark = pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, *EMBEDDED)

WITH_CONFIG: dict[str, tuple[Any, ...]] = {
    "put": (checkpoint(5, {"x": 1}),),
    "put_writes": ([("x", 1)], "task"),
    "get": (),
    "list": (),
    "history": (["x"],),
}
"""The methods that take a config, with what follows it."""

ODD_STRINGS = ["a\0b", "\0", "$gt", "$x", "a.b", "a:b", "", " ", "null", "Ü€😀", "t" * 4000]
"""Good identifiers and channel names, each a different one."""

SAFE = config("safe", id=checkpoint_id(1))


class Thread(str, enum.Enum):  # noqa: UP042  # the mixin, whose str() is not its value
    """Names of threads, as an application may keep them."""

    SUPPORT = "support"


async def refuse_config(attempts: Attempts, what: str, says: str, where: Any) -> None:
    """Every method that takes a config refuses this one."""
    for method, more in WITH_CONFIG.items():
        if not (method == "list" and says == "thread_id" and "thread_id" not in where.get("configurable", {})):
            await attempts.refuse(what, says, method, where, *more)


async def refuse_put(attempts: Attempts, what: str, says: str, **changed: Any) -> None:
    """A put onto the safe thread with some arguments exchanged; a key of the checkpoint where the name is one."""
    good = checkpoint(5, {"x": 1})
    own = {name: changed.pop(name) for name in list(changed) if name in good}
    call = {"checkpoint": {**good, **own}, "metadata": metadata(), "new_versions": {"x": 6}, **changed}
    await attempts.refuse(what, says, "call", "put", config("safe"), *call.values())


@pytest.mark.parametrize("name", ["thread_id", "checkpoint_ns", "checkpoint_id"])
@scenario
async def test_identifiers_of_a_config(env: Env, name: str) -> None:
    good = SAFE["configurable"]
    async with attack(env) as attempts:
        for kind, value in {**NO_IDENTIFIERS, **({"None": None} if name == "thread_id" else {})}.items():
            await refuse_config(attempts, kind, name, {"configurable": {**good, name: value}})
            if name == "checkpoint_id":
                before = {"configurable": {**good, name: value}}
                await attempts.refuse(f"before {kind}", "before", "list", None, before=before)


@scenario
async def test_configs(env: Env) -> None:
    async with attack(env) as attempts:
        for kind, value in NO_MAPPINGS.items():
            await refuse_config(attempts, kind, "config", value)
            await refuse_config(attempts, f"configurable {kind}", "configurable", {"configurable": value})
        await refuse_config(attempts, "empty", "thread_id", {})
        await refuse_config(attempts, "no thread", "thread_id", {"configurable": {"checkpoint_ns": ""}})
        for method in ("put", "put_writes", "get", "history"):
            await attempts.refuse("None", "config", method, None, *WITH_CONFIG[method])
        for where in (config("safe"), config("safe", id=""), config("safe", checkpoint_id=None)):
            await attempts.refuse("no id", "checkpoint_id", "put_writes", where, [("x", 1)], "task")


@scenario
async def test_metadata_of_a_config(env: Env) -> None:
    """It goes into the checkpoint's own, and its run_id into the documents."""
    async with attack(env) as attempts:
        for kind, value in NO_MAPPINGS.items():
            for method in ("put", "put_writes"):
                await attempts.refuse(kind, "metadata", method, {**SAFE, "metadata": value}, *WITH_CONFIG[method])


@scenario
async def test_threads_and_tasks(env: Env) -> None:
    async with attack(env) as attempts:
        for kind, value in {**NO_IDENTIFIERS, "None": None}.items():
            await attempts.refuse(kind, "thread_id", "delete_thread", value)
            await attempts.refuse(kind, "task_id", "put_writes", SAFE, [("x", 1)], value)
        for kind, value in NO_NAMES.items():
            await attempts.refuse(kind, "task_path", "put_writes", SAFE, [("x", 1)], "task", value)


@scenario
async def test_arguments_of_list(env: Env) -> None:
    async with attack(env) as attempts:
        for kind, value in NO_MAPPINGS.items():
            await attempts.refuse(f"filter {kind}", "filter", "list", config("safe"), filter=value)
            await attempts.refuse(f"before {kind}", "", "list", config("safe"), before={"configurable": value})
        for kind, value in {**NO_IDENTIFIERS, "str": "1"}.items():
            if kind != "int":
                await attempts.refuse(f"limit {kind}", "limit", "list", config("safe"), limit=value)


@scenario
async def test_before_is_named_where_it_is_wrong(env: Env) -> None:
    async with attack(env) as attempts:
        for kind, value in NO_MAPPINGS.items():
            await attempts.refuse(kind, "before", "list", config("safe"), before=value)


@scenario
async def test_writes_and_channels(env: Env) -> None:
    no_pairs: dict[str, Any] = {"one": [("x",)], "three": [("x", 1, 2)], "nothing": [None], "text": ["x"]}
    async with attack(env) as attempts:
        for kind, value in {**NO_MAPPINGS, **NO_STRINGS, **no_pairs, "None": None}.items():
            await attempts.refuse(kind, "writes", "put_writes", SAFE, value, "task")
        for kind, value in NO_NAMES.items():
            await attempts.refuse(kind, "channel", "put_writes", SAFE, [("x", 1), (value, 1)], "task")
            await attempts.refuse(f"one of them {kind}", "channel", "history", SAFE, ["x", value])
            if kind != "list":
                await attempts.refuse(kind, "channels", "history", SAFE, value)


@scenario
async def test_arguments_of_put(env: Env) -> None:
    async with attack(env) as attempts:
        for kind, value in {**NO_MAPPINGS, "None": None}.items():
            await refuse_put(attempts, f"checkpoint {kind}", "checkpoint", checkpoint=value)
            await refuse_put(attempts, f"metadata {kind}", "metadata", metadata=value)
            await refuse_put(attempts, f"new_versions {kind}", "new_versions", new_versions=value)
            await refuse_put(attempts, f"values {kind}", "channel_values", channel_values=value)
            await refuse_put(attempts, f"versions {kind}", "channel_versions", channel_versions=value)
        await refuse_put(attempts, "empty checkpoint", "checkpoint", checkpoint={})
        for kind, value in {**NO_IDENTIFIERS, "None": None, "nothing": ""}.items():
            await refuse_put(attempts, f"id {kind}", "id", id=value)
        for channel in (1, None, b"x", ("x",), "\ud800"):
            await refuse_put(attempts, f"channel {channel!r}", "channel", channel_values={channel: 1})


@scenario
async def test_versions_of_put(env: Env) -> None:
    """LangGraph's are str, int or float; None is that of a channel that was never written."""
    async with attack(env) as attempts:
        for kind in ("dict", "list", "bytes", "regex", "object id"):
            versions = {"x": NO_STRINGS[kind]}
            await refuse_put(attempts, f"small {kind}", "version", channel_versions=versions)
            large = {"x": "y" * 20_000}
            await refuse_put(attempts, f"large {kind}", "version", channel_versions=versions, channel_values=large)


@scenario
async def test_code_is_no_string(env: Env) -> None:
    """It is a str to `isinstance`, but `Code("safe") != "safe"`: it must not stand for the thread of its text."""
    code = Code("safe", {"a": 1})
    async with attack(env) as attempts:
        await refuse_config(
            attempts, "code", "thread_id", {"configurable": {**SAFE["configurable"], "thread_id": code}}
        )
        await attempts.refuse("code", "thread_id", "delete_thread", code)
        await attempts.refuse("code", "task_id", "put_writes", SAFE, [("x", 1)], code)
        await attempts.refuse("code", "channel", "put_writes", SAFE, [(code, 1)], "task")
        await attempts.refuse("code", "channel", "history", SAFE, [code])


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({"ts": "0001-01-01T00:00:00+10:00"}, {}),
        ({"ts": "9999-12-31T23:59:59-10:00"}, {}),
        ({"ts": 5}, {}),
        ({}, {"counters_since_delta_snapshot": {1: (1, 2), "x": (1, 3)}}),
        ({}, {"counters_since_delta_snapshot": {"x": (1, float("inf"))}}),
        ({}, {"counters_since_delta_snapshot": ["x"]}),
        ({}, {"parents": ["x"], "run_id": 5, "step": 2**63, "source": b"x"}),
        ({}, {1: "a", None: "b", "": "c"}),
    ],
    ids=["early ts", "late ts", "ts no str", "counted int", "counted inf", "counters list", "plain fields", "keys"],
)
@pytest.mark.kinds(PYMONGO, MONGOMOCK_MOTOR)
@scenario
async def test_odd_but_allowed_in_put(env: Env, changed: Any, more: Any) -> None:
    """What LangGraph's own saver stores, ours stores too, whatever is made of it in the plain fields."""
    store, measure = env.open(), InMemorySaver()
    new = {**checkpoint(5, {"x": 1}), **changed}
    asked: Any = {"source": "loop", "step": 1, **more}
    measure.put(config(), new, asked, {"x": 6})
    await store.put(config(), new, asked)
    found, expected = await store.get(config()), measure.get_tuple(config())
    assert (found.checkpoint, found.metadata) == (expected.checkpoint, expected.metadata)


@scenario
async def test_values_that_cannot_be_serialised(env: Env) -> None:
    """The serializer's own error comes through, before anything is stored."""
    async with attack(env) as attempts:
        store = attempts.store
        await store.get(SAFE)  # so that the parent is known
        for value in (threading.Lock(), nested(3000)):
            for call in (
                lambda value=value: store.put(SAFE, checkpoint(5, {"a": "y" * 20_000, "z": value})),
                lambda value=value: store.put(SAFE, checkpoint(5, {"x": 1}), metadata(k=value)),
                lambda value=value: store.put_writes(SAFE, [("x", "y" * 20_000), ("x", value)], "new"),
            ):
                with env.commands.count() as sent, pytest.raises((TypeError, InvalidArgumentError)):
                    await call()
                assert sent == []


@scenario
async def test_odd_values_come_back(env: Env) -> None:
    """State is not an identifier: nothing in it is special to the store."""
    kinds = ("dict", "operator", "javascript", "list", "bytes", "regex", "depth 200")
    odd_keys = {"a.b": 1, "$set": 2, "": 3, "\0": 4, 5: 6, None: 7}
    strings = {"lone surrogate": "\ud800", "1 MB": LONG, "NUL": "a\0b"}
    values = {**{kind: NO_STRINGS[kind] for kind in kinds}, **strings, "odd keys": odd_keys}
    store, measure = env.open(), InMemorySaver()
    new, writes = checkpoint(1, values), list(values.items())
    stored = await store.put(config(), new, metadata(**values))
    await store.put_writes(stored, writes, "task")
    measure.put(config(), new, metadata(**values), new["channel_versions"])
    measure.put_writes(stored, writes, "task")
    found, expected = await store.get(config()), measure.get_tuple(config())
    assert found.checkpoint == expected.checkpoint
    assert found.metadata == expected.metadata
    assert found.pending_writes == expected.pending_writes


@scenario
async def test_odd_names_are_names(env: Env) -> None:
    """No string means anything to the store: each is one thread, namespace, checkpoint, task and channel."""
    store = env.open()
    await keep_safe(store)
    for n, name in enumerate(ODD_STRINGS):
        new = {**checkpoint(n, dict.fromkeys(ODD_STRINGS, n)), "id": name or "id"}
        stored = await store.put(config(name, name), new)
        await store.put_writes(stored, [(name, n)], name, name)
    for n, name in enumerate(ODD_STRINGS):
        where = config(name, name, id=name or "id")
        found = await store.get(where)
        assert found.checkpoint["channel_values"] == dict.fromkeys(ODD_STRINGS, n)
        assert found.pending_writes == [(name, name, n)]
        assert ids(await store.list(config(name, name))) == [name or "id"]
        assert ids(await store.list({"configurable": {"thread_id": name}})) == [name or "id"]
        assert (await store.history(where, [name])) == {name: {"writes": []}}
    for name in ODD_STRINGS:
        await store.delete_thread(name)
    assert set(threads(await store.list(None))) == {"safe"}
    await require_safe(store)


@scenario
async def test_long_names_of_channels(env: Env) -> None:
    store = env.open()
    stored = await store.put(config(), checkpoint(1, {LONG: 1}))
    await store.put_writes(stored, [(LONG, 2)], "task", LONG)
    found = await store.get(config())
    assert found.checkpoint["channel_values"] == {LONG: 1}
    assert found.pending_writes == [("task", LONG, 2)]


@scenario
async def test_filters_mean_equality(env: Env) -> None:
    """No operator, pattern or type trick of a filter does more than compare; InMemorySaver is the measure."""
    store, measure = env.open(), InMemorySaver()
    for n, value in enumerate([1, "1", None, {"$gt": ""}, {}, "loop", [1], b"t", nested(200), "\ud800"]):
        await store.put(config(), checkpoint(n), metadata(n, k=value))
        measure.put(config(), checkpoint(n), metadata(n, k=value), {})
    wanted: list[Any] = [*NO_IDENTIFIERS.values(), None, {}, "1", "loop", Code("loop"), "a\0b", float("nan")]
    filters: list[Any] = [{"k": value} for value in [*wanted, {"$ne": 1}, {"$in": [1]}, {"$exists": True}]]
    filters += [
        {"$where": "true"},
        {"$or": [{}]},
        {"k.$gt": ""},
        {"\ud800": None},
        {1: None},
        {"": 1},
        {"k": 1, "z": None},
    ]
    for asked in filters:
        assert ids(await store.list(config(), filter=asked)) == ids(list(measure.list(config(), filter=asked))), asked
    for limit in (0, -1, 1, 10**30):
        assert ids(await store.list(config(), limit=limit)) == ids(list(measure.list(config(), limit=limit)))


@scenario
async def test_one_and_its_text_do_not_meet(env: Env) -> None:
    store = env.open()
    await store.put(config("1"), checkpoint(1, {"x": "text"}))
    for thread in (1, 1.0, b"1", True):
        with pytest.raises(InvalidArgumentError, match=r"thread_id must be a str.*str\(\.\.\.\)"):
            await store.get(config(thread))
    assert (await store.get(config("1"))).checkpoint["channel_values"] == {"x": "text"}


@scenario
async def test_a_uuid_equals_its_text(env: Env) -> None:
    store = env.open()
    thread, ns, own_id, task = (uuid.uuid4() for _ in range(4))
    stored = await store.put(config(thread, ns), {**checkpoint(1, {"x": 1}), "id": own_id})
    assert stored == config(str(thread), str(ns), id=str(own_id))
    await store.call("put_writes", config(thread, ns, id=own_id), [("x", 1)], task)
    await store.put_writes(stored, [("x", "second")], str(task))
    for where in (config(thread, ns), config(str(thread), str(ns), id=own_id)):
        assert (await store.get(where)).pending_writes == [(str(task), "x", 1)]
    assert len(await store.list(config(thread, ns))) == 1
    assert await store.list(config(thread, ns), before=config(id=own_id)) == []
    await store.delete_thread(thread)
    assert await store.get(config(str(thread), str(ns))) is None


@scenario
async def test_a_kind_of_str_equals_its_value(env: Env) -> None:
    """`Thread.SUPPORT == "support"`, so they are one thread; str() of it is another string."""
    store = env.open()
    await store.put(config(Thread.SUPPORT), checkpoint(1, {"x": 1}))
    assert threads(await store.list(None)) == ["support"]
    assert (await store.get(config("support"))).checkpoint["channel_values"] == {"x": 1}
    await store.delete_thread(Thread.SUPPORT)
    assert await store.list(None) == []
