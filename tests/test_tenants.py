"""Tenants: equal ids never meet, whichever way a call says for whom it is, and no call works without one."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import chain, checkpoint, checkpoint_id, config
from support.env import Env, scenario
from support.hostile import NO_IDENTIFIERS, NO_STRINGS
from support.kinds import MONGOMOCK, MONGOMOCK_MOTOR, MOTOR, ON_MONGOD, PYMONGO
from support.stores import Store
from support.tenants import CURRENT, KEY, WAYS, View, views

from docstore_saver.errors import InvalidArgumentError, TenantRequiredError

TENANTS = ["acme", "Acme", "$acme"]
EVERY_CALL = {
    "put": lambda store, where: store.put(where, checkpoint(5, {"x": 1})),
    "put_writes": lambda store, where: store.put_writes(where, [("x", 1)], "task"),
    "get": lambda store, where: store.get(where),
    "list": lambda store, where: store.list(where),
    "history": lambda store, where: store.history(where, ["x"]),
}


async def fill(view: View) -> list[dict[str, Any]]:
    """The same thread for every tenant: inline, large and delta values, writes; each marked with its tenant."""
    mark = f"of {view.tenant}"
    first = {"x": mark, "large": mark * 2000, "log": _DeltaSnapshot([mark])}
    stored = [await view.store.put(view.config("t"), checkpoint(0, first, {"x": 1, "large": 1, "log": 1}))]
    writes = [("log", mark), ("y", mark * 2000), ("__interrupt__", mark)]
    await view.store.put_writes(view.config("t", id=checkpoint_id(0)), writes, "task")
    second = checkpoint(1, {"x": mark + "!"}, {"x": 2, "large": 1, "log": 2})
    stored.append(await view.store.put(view.config("t", id=checkpoint_id(0)), second, None, {"x": 2, "log": 2}))
    return stored


async def require_own(view: View) -> None:
    """Everything that the view gets is its tenant's own, and all of it is there."""
    mark, store = f"of {view.tenant}", view.store
    head = await store.get(view.config("t"))
    assert head.checkpoint["channel_values"] == {"x": mark + "!", "large": mark * 2000}
    first = await store.get(view.config("t", id=checkpoint_id(0)))
    writes = [("task", "__interrupt__", mark), ("task", "log", mark), ("task", "y", mark * 2000)]
    assert first.pending_writes == writes
    for listed in (await view.everything(), await store.list(view.config("t"))):
        assert [item.checkpoint["channel_values"]["x"] for item in listed] == [mark + "!", mark]
    history = await store.history(view.config("t"), ["log"])
    assert history == {"log": {"writes": [("task", "log", mark)], "seed": _DeltaSnapshot([mark])}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.kinds(PYMONGO, MOTOR, MONGOMOCK, MONGOMOCK_MOTOR)
@scenario
async def test_equal_ids_never_meet(env: Env, way: str) -> None:
    view_of = views(env, way, inline_limit=1000)
    all_views = [view_of(tenant) for tenant in TENANTS]
    nobody = env.open()  # a saver without tenants on the same collections
    await chain(nobody, 1)
    for view in all_views:
        await fill(view)
    for view in [*all_views, views(env, "option")(TENANTS[0])]:
        await require_own(view)
    await all_views[0].delete("t")
    assert await all_views[0].everything() == []
    assert await all_views[0].store.get(all_views[0].config("t")) is None
    for view in all_views[1:]:
        await require_own(view)
    assert [item.checkpoint["channel_values"] for item in await nobody.list(None)] == [{"x": 0}]


@scenario
async def test_returned_configs_carry_the_key(env: Env) -> None:
    """LangGraph goes on with what it was answered, so that must lead back."""
    store = env.open(tenant_from=KEY)
    first = await store.put(config(tenant_id="acme"), checkpoint(0, {"x": 0}))
    second = await store.put(first, checkpoint(1, {"x": 1}))
    assert (first, second) == tuple(config(id=checkpoint_id(n), tenant_id="acme") for n in (0, 1))
    found = await store.get(config(tenant_id="acme"))
    assert (found.config, found.parent_config) == (second, first)
    assert [item.config for item in await store.list(found.parent_config)] == [first]
    assert [item.parent_config for item in await store.list({"configurable": {KEY: "acme"}})] == [first, None]
    for options in ({"tenant_from": lambda: "acme"}, {"tenant": "acme"}):
        found = await env.open(**options).get(config())
        assert found.config == config(id=checkpoint_id(1))


async def refuse_key(env: Env, store: Store, value: Any) -> None:
    """Every call with this tenant in its config is refused before anything is sent."""
    for method, call in EVERY_CALL.items():
        with env.commands.count() as sent, pytest.raises((TenantRequiredError, InvalidArgumentError)) as caught:
            await call(store, config(id=checkpoint_id(1), tenant_id=value))
        assert sent == [], method
        assert len(str(caught.value)) < 400


@scenario
async def test_no_tenant_of_a_key(env: Env) -> None:
    """Neither a missing one nor one that is no name."""
    store = env.open(tenant_from=KEY)
    await store.put(config(tenant_id="acme"), checkpoint(1))
    for value in (None, "", *NO_STRINGS.values()):
        await refuse_key(env, store, value)


@pytest.mark.parametrize("kind", ["lone surrogate", "1 MB"])
@pytest.mark.kinds(PYMONGO, MONGOMOCK_MOTOR)
@scenario
async def test_a_tenant_that_cannot_be_stored(env: Env, kind: str) -> None:
    """A tenant is an identifier like the others: UTF-8, and bounded by what the store can index."""
    store = env.open(tenant_from=KEY)
    await store.put(config(tenant_id="acme"), checkpoint(1))
    await refuse_key(env, store, NO_IDENTIFIERS[kind])


@scenario
async def test_calls_that_a_key_cannot_reach(env: Env) -> None:
    """The error names the two ways out, and nothing is sent."""
    store = env.open(tenant_from=KEY)
    await store.put(config(tenant_id="acme"), checkpoint(1, {"x": 1}))
    calls = [lambda: store.delete_thread("t"), lambda: store.list(None)]
    calls += [lambda call=call: call(store, config(id=checkpoint_id(1))) for call in EVERY_CALL.values()]
    for call in calls:
        with env.commands.count() as sent, pytest.raises(TenantRequiredError, match=r"for_tenant.*callable"):
            await call()
        assert sent == []
    clone = store.over(store.saver.for_tenant("acme"))
    assert len(await clone.list(None)) == 1
    await clone.delete_thread("t")
    assert await store.get(config(tenant_id="acme")) is None


@pytest.mark.parametrize("value", [None, "", 5, {"$gt": ""}])
@scenario
async def test_a_callable_without_an_answer(env: Env, value: Any) -> None:
    store = env.open(tenant_from=lambda: value)
    for call in EVERY_CALL.values():
        with env.commands.count() as sent, pytest.raises(TenantRequiredError):
            await call(store, config(id=checkpoint_id(1)))
        assert sent == []


@scenario
async def test_a_context_variable_that_is_not_set(env: Env) -> None:
    """`ContextVar.get` is the callable that comes to mind first; without a value it raises a LookupError."""
    store = env.open(tenant_from=ContextVar[str]("unset").get)
    with pytest.raises(TenantRequiredError):
        await store.get(config())


@scenario
async def test_an_earlier_tenant_is_not_remembered(env: Env) -> None:
    answers = iter(["acme", ""])
    store = env.open(tenant_from=lambda: next(answers))
    await store.put(config(), checkpoint(1))
    with pytest.raises(TenantRequiredError):
        await store.get(config())


@scenario
async def test_a_clone_cannot_be_overridden(env: Env) -> None:
    """Neither by the key of a config, nor by the callable, nor by another clone of it."""
    for options in ({"tenant_from": KEY}, {"tenant_from": lambda: "evil"}, {}):
        store = env.open(**options)
        acme, evil = (store.over(store.saver.for_tenant(tenant)) for tenant in ("acme", "evil"))
        await acme.put(config(tenant_id="evil"), checkpoint(1, {"x": "acme"}))
        assert await evil.get(config(tenant_id="acme")) is None
        assert (await acme.get(config(tenant_id="evil"))).checkpoint["channel_values"] == {"x": "acme"}
        assert acme.saver.for_tenant("acme") is not None
        for saver in (acme.saver, env.open(tenant="acme").saver):
            with pytest.raises(InvalidArgumentError, match="another tenant"):
                saver.for_tenant("evil")
        await acme.delete_thread("t")


@scenario
async def test_clones_share_the_client(env: Env) -> None:
    """And what was found out once: a clone makes no indexes of its own."""
    store = env.open()
    clone = store.over(store.saver.for_tenant("acme"))
    await chain(clone, 1)
    other = store.over(store.saver.for_tenant("other"))
    with env.commands.count() as sent:
        await chain(other, 1)
        await chain(store, 1)
    assert [name for name, _ in sent if name not in ("insert", "find")] == []
    assert clone.saver._engine is store.saver._engine
    assert clone.saver._state is store.saver._state


@scenario
async def test_a_clone_of_langgraph_keeps_its_tenant(env: Env) -> None:
    store = env.open()
    acme = store.over(store.saver.for_tenant("acme"))
    allowing = acme.over(acme.saver.with_allowlist([("some.module", "Thing")]))
    await allowing.put(config(), checkpoint(1))
    assert len(await acme.list(None)) == 1
    assert await store.list(None) == []


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_every_command_names_the_tenant(env: Env) -> None:
    """In the filter itself, in the look-up of writes, and in what a graph look-up may follow."""
    view = views(env, "for_tenant", inline_limit=1000, delta_strategy="graph_lookup")("acme")
    await view.store.call("setup")
    with env.commands.count() as sent:
        await fill(view)
        await fill(views(env, "option", auto_setup=False)("acme"))  # the same again: replaces, heads, touches
        await require_own(view)
        await view.delete("t")
    seen = set()
    for name, body in sent:
        for part in _filters(name, body):
            assert part.get("tenant") == "acme" or part == {"_id": "settings"}, (name, part)
            seen.add(name)
    assert seen == {"insert", "update", "delete", "find", "aggregate"}
    assert "$graphLookup" in str(sent)


def _filters(name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """All that selects documents in a command, and the documents of an insert."""
    if name == "insert":
        return list(body["documents"])
    if name in ("update", "delete"):
        return [one["q"] for one in body[name + "s"]]
    if name == "aggregate":
        stages = [*body["pipeline"]]
        stages += [inner for stage in stages for inner in stage.get("$lookup", {}).get("pipeline", [])]
        looked_up = [stage["$graphLookup"]["restrictSearchWithMatch"] for stage in stages if "$graphLookup" in stage]
        return [*looked_up, *(stage["$match"] for stage in stages if "$match" in stage)]
    return [body.get("filter", body.get("query", {}))]


@pytest.mark.kinds(MONGOMOCK, PYMONGO)
@scenario
async def test_a_context_variable_reaches_the_thread_pool(env: Env) -> None:
    """The a... methods of a sync saver run in threads, with the context of their caller."""
    store = env.open(tenant_from=CURRENT.get)

    async def main() -> None:
        for tenant in ("a", "b"):
            CURRENT.set(tenant)
            await store.saver.aput(config(), checkpoint(1, {"x": tenant}), {}, {})
        found = [[item async for item in store.saver.alist(None)]]
        assert [item.checkpoint["channel_values"] for item in found[0]] == [{"x": "b"}]
        CURRENT.set("a")
        assert (await store.saver.aget_tuple(config())).checkpoint["channel_values"] == {"x": "a"}

    copy_context().run(asyncio.run, main())


@pytest.mark.kinds(MONGOMOCK_MOTOR, MOTOR)
@scenario
async def test_a_context_variable_reaches_the_loop(env: Env) -> None:
    """The sync methods of an async saver run on its loop, with the context of the calling thread."""
    store = env.open(tenant_from=CURRENT.get)
    CURRENT.set("loop")
    await store.put(config(), checkpoint(1, {"x": "loop"}))

    def in_thread() -> Any:
        CURRENT.set("thread")
        assert list(store.saver.list(None)) == []
        store.saver.put(config(), checkpoint(1, {"x": "thread"}), {}, {})
        return store.saver.get_tuple(config()).checkpoint["channel_values"]

    assert await asyncio.to_thread(in_thread) == {"x": "thread"}
    assert (await store.get(config())).checkpoint["channel_values"] == {"x": "loop"}
