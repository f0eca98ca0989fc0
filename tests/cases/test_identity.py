"""Public bug reports about identifiers: threads, namespaces and checkpoints that meet, or are not found."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from support.builders import chain, checkpoint, checkpoint_id, config, ids, metadata, whole_thread, written
from support.env import Env, scenario
from support.stores import Store

from docstore_saver.errors import InvalidArgumentError


def values(item: Any) -> dict[str, Any]:
    found: dict[str, Any] = item.checkpoint["channel_values"]
    return found


OPERATORS: list[Any] = [{"$gt": ""}, {"$ne": "zz"}, {"$exists": True}, {"$regex": "."}, {"$in": ["victim"]}]


@scenario
async def test_an_operator_in_place_of_an_identifier_is_refused(env: Env) -> None:
    """A query operator as an id is an error everywhere: it shows and deletes nothing (langgraphjs #2351, #2353)."""
    store = env.open()
    at = await store.put(config("victim"), checkpoint(0, {"secret": "kept"}), metadata())
    await store.put_writes(at, [("x", "kept too")], "task")
    for call in [call for operator in OPERATORS for call in calls_with(store, at, operator)]:
        with pytest.raises(InvalidArgumentError):
            await call
    found = await store.list(None)
    assert [(values(item), written(item)) for item in found] == [({"secret": "kept"}, ["kept too"])]


def calls_with(store: Store, at: Any, operator: Any) -> list[Any]:
    """Every method, with an operator in every place for an identifier."""
    smuggled = [config(operator), config("victim", operator), config("victim", id=operator)]
    return [
        *(call for bad in smuggled for call in (store.get(bad), store.list(bad), store.history(bad, ["secret"]))),
        *(store.put_writes(bad, [("x", "overwritten")], "task") for bad in smuggled),
        *(store.put(bad, checkpoint(1, {"secret": "overwritten"})) for bad in smuggled),
        store.list(config("victim"), before=config("victim", id=operator)),
        store.put_writes(at, [("x", "overwritten")], operator),
        store.delete_thread(operator),
    ]


@scenario
async def test_the_parent_config_leads_to_the_parent(env: Env) -> None:
    """parent_config names the parent and not the checkpoint itself; a root has none (langgraphjs #555)."""
    store = env.open()
    for ns in ("", "inner:1"):
        stored = await chain(store, 4, ns=ns)
        for reader in (store, env.open()):
            single = [await reader.get(at) for at in reversed(stored)]
            listed = await reader.list(config(ns=ns))
            for found in (single, listed):
                assert [item.config for item in found] == stored[::-1]
                assert [item.parent_config for item in found] == [*stored[-2::-1], None]
        parent = await store.get(single[0].parent_config)
        assert (parent.config, values(parent)) == (stored[2], {"x": 2})


@scenario
async def test_what_does_not_exist_is_none(env: Env) -> None:
    """A new thread, an unknown namespace or id is None, never an error or the latest checkpoint (langgraph #7916)."""
    store = env.open()
    for nothing in (whole_thread("new"), config("new"), config("new", id=checkpoint_id(0)), config("new", "inner:1")):
        assert await store.get(nothing) is None
        assert await store.list(nothing) == []
    await chain(store, 3)
    for nothing in (config(id=checkpoint_id(77)), config(ns="inner:1"), config(ns="inner:1", id=checkpoint_id(1))):
        assert await store.get(nothing) is None
        assert await store.list(nothing) == []
    assert (await store.get(whole_thread())).config == config(id=checkpoint_id(2))


@scenario
async def test_channels_that_a_step_did_not_touch_are_in_its_checkpoint(env: Env) -> None:
    """Only changed channels are stored anew, yet all are read (langgraph-redis #69, langgraphjs #2555, #2335)."""
    kept = {"question": "why?", "messages": ["hello"], "document": "d" * 500}
    store = env.open(inline_limit=256)
    at = await store.put(config(), checkpoint(0, {**kept, "count": 0}), metadata())
    versions = dict.fromkeys(kept, 1)
    stored = [at]
    for n in (1, 2):
        new = checkpoint(n, {**kept, "count": n}, {**versions, "count": n + 1})
        # The second step is another process's, which has not seen the values.
        at = await env.open(inline_limit=256).put(at, new, metadata(n), {"count": n + 1})
        stored.append(at)
    for n, where in enumerate(stored):
        assert values(await env.open().get(where)) == {**kept, "count": n}
    assert [values(item)["count"] for item in await store.list(config())] == [2, 1, 0]


async def thread_with_a_subgraph(store: Store, thread: str) -> None:
    for ns, first in (("", 0), ("inner:1", 5), ("inner:1|deep:2", 8)):
        at = (await chain(store, 2, thread, ns, first=first))[-1]
        await store.put_writes(at, [("x", f"{thread} {ns}"), ("big", "b" * 100)], "task")


@scenario
async def test_deleting_a_thread_takes_all_of_it_and_nothing_else(env: Env) -> None:
    """All namespaces and writes go; threads whose names begin alike stay (langgraph-redis #51, aegra #499)."""
    store = env.open(inline_limit=64)
    others = ("7", "71", "700", "thread 7", "17")
    for thread in ("70", *others):
        await thread_with_a_subgraph(store, thread)
    for thread in ("70", "70", "was never there"):
        await store.delete_thread(thread)
    assert await store.list(whole_thread("70")) == []
    assert await store.get(config("70", "inner:1")) is None
    assert all(env.raw[name].count_documents({"thread_id": "70"}) == 0 for name in env.raw.list_collection_names())
    for thread in others:
        assert len(await store.list(whole_thread(thread))) == 6
        assert written(await store.get(config(thread, "inner:1"))) == [f"{thread} inner:1", "b" * 100]
    # The same ids again, by a saver that remembers them and by one that does not.
    for again in (store, env.open()):
        for at in await chain(again, 2, "70"):
            assert (await again.get(at)).pending_writes == []
        await again.delete_thread("70")


PLACES = [
    ("x:y", "z"),
    ("x", "y:z"),
    ("x|y", ""),
    ("x", "y|"),
    ("x", "|y"),
    ("$ne", ""),
    ("$where", "$gt"),
    ("x.y", ""),
    ("x/y?q=1#%41", ""),
    ("x y", ""),
    (" x y", ""),
    ("x y ", ""),
    ("X Y", ""),
    ("线程-7", "名:称"),
    ("ü", ""),
    ("u\u0308", ""),
    ("{y}", ""),
    ("*", ""),
    ("x\\y", ""),
    ("-7", ""),
    ("7", ""),
    ("07", ""),
    ("'; drop table threads; --", ""),
    ("x\ty\n", ""),
    ("\U0001f680", "n:\U0001f680"),
]
"""Threads and namespaces that some separator, pattern, folding or normal form would confuse."""


@scenario
async def test_odd_identifiers_stay_apart(env: Env) -> None:
    """Separators, patterns and equal-looking texts in ids are just text (langgraphjs #2012, langgraph #2712)."""
    store = env.open()
    for n, (thread, ns) in enumerate(PLACES):
        at = await store.put(config(thread, ns), checkpoint(0, {"owner": n}), metadata())
        await store.put_writes(at, [("x", n)], "task")
    for n, (thread, ns) in enumerate(PLACES):
        found = await store.get(config(thread, ns))
        assert found.config == config(thread, ns, checkpoint_id(0))
        assert (values(found), written(found)) == ({"owner": n}, [n])
        assert [values(item) for item in await store.list(config(thread, ns))] == [{"owner": n}]
    await store.delete_thread("x")
    left = {(n,) for n, (thread, _) in enumerate(PLACES) if thread != "x"}
    assert {tuple(written(item)) for item in await store.list(None)} == left


@scenario
async def test_a_very_long_thread_id_works(env: Env) -> None:
    """Ids far over an index's usual limits are kept apart by their last character (langgraph #6239)."""
    store = env.open()
    long = "é" * 4000 + "t" * 4000
    for n, last in enumerate("ab"):
        for at in await chain(store, 2, long + last, first=2 * n):
            await store.put_writes(at, [("x", last)], "k" * 12_000)
    for n, last in enumerate("ab"):
        found = await store.get(config(long + last))
        assert (values(found), written(found)) == ({"x": 2 * n + 1}, [last])
        assert len(await store.list(whole_thread(long + last))) == 2
    await store.delete_thread(long + "a")
    assert ids(await store.list(None)) == [checkpoint_id(3), checkpoint_id(2)]


@scenario
async def test_a_number_is_no_thread_id(env: Env) -> None:
    """1 and "1" never meet: what is no str is refused, and a UUID is its own text (langgraph #6890, #6891)."""
    store = env.open()
    await store.put(config("1"), checkpoint(0, {"owner": "text"}), metadata())
    for number in (1, 1.0, True, b"1", None):
        for call in (
            store.put(config(number), checkpoint(1, {"owner": "number"})),
            store.get(config(number)),
            store.list(config(number)),
            store.delete_thread(number),
        ):
            with pytest.raises(InvalidArgumentError, match="thread_id must be a str"):
                await call
    own = uuid.UUID(int=1)
    await store.put(config(own), checkpoint(2, {"owner": "uuid"}), metadata())
    for same in (own, str(own)):
        assert values(await store.get(config(same))) == {"owner": "uuid"}
    assert values(await store.get(config("1"))) == {"owner": "text"}
    assert len(await store.list(None)) == 2
