"""Public bug reports about size: states over a document's limit, and values nested deeper than a store allows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.builders import checkpoint, checkpoint_id, config, ids, metadata, written
from support.env import Env, scenario
from support.kinds import ON_MONGOD
from support.stores import Store

MIB = 1024 * 1024


def nested(depth: int) -> Any:
    value: Any = ["leaf"]
    for n in range(depth):
        value = {"down": value} if n % 3 else [value]
    return value


def noise(size: int, seed: int) -> bytes:
    """Bytes that no compression makes small."""
    return random.Random(seed).randbytes(size)


@scenario
async def test_deep_nesting_is_kept(env: Env) -> None:
    """What the serializer takes (250 levels) the store takes, over BSON's limit (asi #1997, dask/distributed #5875)."""
    store = env.open()
    # The larger one is stored apart.
    state = {"x": nested(240), "apart": [nested(230), "a" * 20_000]}
    at = await store.put(config(), checkpoint(0, state), metadata(tree=nested(200)))
    await store.put_writes(at, list(state.items()), "task")
    for found in (await env.open().get(at), (await env.open().list(None, filter={"tree": nested(200)}))[0]):
        assert found.checkpoint["channel_values"] == state
        assert found.metadata["tree"] == nested(200)
        assert written(found) == list(state.values())


@scenario
async def test_a_value_over_the_document_limit_is_kept(env: Env) -> None:
    """One channel of 18 MB is stored, and the thread goes on behind it (LibreChat #14157)."""
    store = env.open()
    small = await store.put(config(), checkpoint(0, {"x": b"small"}), metadata())
    large = noise(18 * MIB, 1)
    at = await store.put(small, checkpoint(1, {"x": large}), metadata(1))
    assert (await env.open().get(config())).checkpoint["channel_values"]["x"] == large
    assert (await store.get(small)).checkpoint["channel_values"] == {"x": b"small"}
    await store.put(at, checkpoint(2, {"x": b"small again"}), metadata(2))
    assert (await store.get(config())).checkpoint["channel_values"] == {"x": b"small again"}


class Unreadable:
    """No serializer takes it."""


@scenario
async def test_a_large_put_that_fails_leaves_the_head(env: Env) -> None:
    """An error amid a large checkpoint reaches the caller, and the thread is as before (LibreChat #14157)."""
    store = env.open()
    at = await store.put(config(), checkpoint(0, {"x": "before"}), metadata())
    with pytest.raises(TypeError, match="Unreadable"):
        await store.put(at, checkpoint(1, {"a": noise(2 * MIB, 2), "x": Unreadable()}), metadata(1))
    with pytest.raises(TypeError, match="Unreadable"):
        await store.put_writes(at, [("a", noise(2 * MIB, 3)), ("x", Unreadable())], "task")
    for reader in (store, env.open()):
        assert ids(await reader.list(config())) == [checkpoint_id(0)]
        found = await reader.get(config())
        assert (found.checkpoint["channel_values"], found.pending_writes) == ({"x": "before"}, [])


@scenario
async def test_a_state_over_the_document_limit_of_smaller_channels_is_kept(env: Env) -> None:
    """Channels that fit each by itself may exceed 16 MB together (LibreChat #14157, mcrit #42)."""
    state = {f"part {n}": noise(5 * MIB, 10 + n) for n in range(4)}
    await put_and_compare(env, env.open(), state)


@pytest.mark.kinds(*ON_MONGOD)
@scenario
async def test_a_state_of_many_small_channels_over_the_limit_is_kept(env: Env) -> None:
    """So may very many channels, each of which would lie in the checkpoint's own document (mcrit #42)."""
    state = {f"part {n}": noise(15_000, 100 + n) for n in range(1200)}
    await put_and_compare(env, env.open(), state)


async def put_and_compare(env: Env, store: Store, state: dict[str, Any]) -> None:
    at = await store.put(config(), checkpoint(0, state), metadata())
    for found in (await store.get(at), (await env.open().list(config()))[0]):
        # Not ==, whose report of a difference would print megabytes.
        values = found.checkpoint["channel_values"]
        assert sorted(values) == sorted(state)
        assert all(values[name] == state[name] for name in state)
