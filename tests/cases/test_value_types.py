"""Public bug reports about values: what Python holds comes back as it was, in state, writes and metadata."""

from __future__ import annotations

import math
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send
from pydantic import BaseModel, SecretStr
from support.builders import checkpoint, checkpoint_id, config, ids, metadata, written
from support.env import Env, scenario


class Shade(Enum):
    DARK = "d"
    LIGHT = "l"


@dataclass
class Spot:
    row: int
    height: float
    near: list[int] = field(default_factory=list)


class Profile(BaseModel):
    name: str
    shade: Shade
    scores: list[int] = []


async def there_and_back(env: Env, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state and the same as writes, as another process reads them; each value small and as one stored apart."""
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for n, inline_limit in enumerate((16 * 1024, 0)):
        store = env.open(inline_limit=inline_limit)
        at = await store.put(config(f"t{n}"), checkpoint(n, state), metadata())
        await store.put_writes(at, list(state.items()), "task")
        item = await env.open().get(at)
        assert [channel for _, channel, _ in item.pending_writes] == list(state)
        found.append((item.checkpoint["channel_values"], {channel: value for _, channel, value in item.pending_writes}))
    # A repr tells kinds and NaN too.
    assert repr(sorted(found[0][0].items())) == repr(sorted(found[1][0].items()))
    assert repr(found[0][1]) == repr(found[1][1])
    return found[0]


@scenario
async def test_nan_and_infinities(env: Env) -> None:
    """What JSON has no word for is kept, and metadata with it can be listed (langflow #11905)."""
    store = env.open(indexed_metadata=["score"])
    odd = [math.inf, -math.inf, math.nan, -0.0]
    at = await store.put(config(), checkpoint(0, {"x": odd}), metadata(score=math.inf, mean=math.nan))
    await store.put_writes(at, [("x", value) for value in odd], "task")
    found = await env.open().get(config())
    for values in (found.checkpoint["channel_values"]["x"], written(found)):
        assert [str(value) for value in values] == ["inf", "-inf", "nan", "-0.0"]
    assert found.metadata["score"] == math.inf
    assert math.isnan(found.metadata["mean"])
    assert len(await store.list(None, filter={"score": math.inf})) == 1
    assert await store.list(None, filter={"score": -math.inf}) == []


@scenario
async def test_integers_up_to_64_bits_are_exact(env: Env) -> None:
    """No integer becomes a float; what is wider than 64 bits is an error and not another number (langgraph #8673)."""
    edges = {"most": 2**63 - 1, "least": -(2**63), "unsigned": 2**64 - 1, "odd": 2**53 + 1, "nested": [2**62 + 1]}
    store = env.open()
    at = await store.put(config(), checkpoint(0, edges), metadata(most=2**63 - 1, unsigned=2**64 - 1))
    await store.put_writes(at, list(edges.items()), "task")
    for wide in (2**64, -(2**63) - 1, 2**300):
        with pytest.raises(TypeError, match="64-bit"):
            await store.put(at, checkpoint(1, {"x": wide}), metadata(1))
        with pytest.raises(TypeError, match="64-bit"):
            await store.put(at, checkpoint(1), metadata(1, wide=wide))
        with pytest.raises(TypeError, match="64-bit"):
            await store.put_writes(at, [("x", wide)], "other task")
    found = await env.open().get(config())
    assert found.checkpoint["channel_values"] == edges
    assert written(found) == list(edges.values())
    assert (found.metadata["most"], found.metadata["unsigned"]) == (2**63 - 1, 2**64 - 1)
    assert ids(await store.list(config(), filter={"most": 2**63 - 1})) == [checkpoint_id(0)]
    assert await store.list(config(), filter={"most": 2**63 - 2}) == []


@scenario
async def test_times_keep_offset_and_microseconds(env: Env) -> None:
    """Zone, microseconds and far years survive, which a BSON date would cut (langgraph #8826)."""
    moments: dict[str, Any] = {
        "zoned": datetime.fromisoformat("2031-07-14T08:15:30.123457+05:45"),
        "west": datetime.fromisoformat("2031-07-14T08:15:30.000001-09:30"),
        "utc": datetime(2031, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC),
        "naive": datetime.fromisoformat("2031-07-14T08:15:30.654321"),
        "first": datetime.fromisoformat("0001-01-01T00:00:00"),
        "last": datetime.fromisoformat("9999-12-31T23:59:59.999999"),
        "day": date(2031, 7, 14),
        "clock": time(23, 59, 59, 1),
        "span": timedelta(days=-3, microseconds=7),
    }
    for found in await there_and_back(env, moments):
        assert found == moments
        for name in ("zoned", "west", "utc", "naive", "first", "last"):
            assert found[name].utcoffset() == moments[name].utcoffset()
    store = env.open()
    await store.put(config("told"), checkpoint(5), metadata(at=moments["zoned"], seen=moments["naive"]))
    told = (await store.get(config("told"))).metadata
    assert (told["at"], told["seen"]) == (moments["zoned"], moments["naive"])
    assert (told["at"].utcoffset(), told["seen"].utcoffset()) == (timedelta(hours=5.75), None)


@scenario
async def test_python_types_come_back_as_themselves(env: Env) -> None:
    """Enums, dataclasses, models and collections become neither None nor dicts (langgraph #6718, #6970)."""
    state: dict[str, Any] = {
        "enum": Shade.LIGHT,
        "dataclass": Spot(3, 0.5, [1, 2]),
        "model": Profile(name="Ada", shade=Shade.DARK, scores=[7]),
        "uuid": uuid.UUID(int=2**100),
        "decimal": Decimal("0.10"),
        "bytes": b"\xfe\x00\x01",
        "set": {3, "three"},
        "frozenset": frozenset({"a", "b"}),
        "deque": deque([2, 1, 0]),
        "path": Path("folder/file.txt"),
        "message": AIMessage("yes", id="m-1"),
        "send": Send("worker", {"task": Spot(0, 1.5)}),
        "nested": {"spots": [Spot(1, 1.0), {"shade": Shade.DARK}]},
    }
    for found in await there_and_back(env, state):
        assert found == state
        assert {name: type(value) for name, value in found.items()} == {name: type(state[name]) for name in state}


@scenario
async def test_a_secret_string_keeps_its_secret(env: Env) -> None:
    """A SecretStr is stored with its value, not with the asterisks that it prints (langgraph #1866, #1873)."""
    for found in await there_and_back(env, {"key": SecretStr("correct horse"), "empty": SecretStr("")}):
        assert {type(value) for value in found.values()} == {SecretStr}
        assert found["key"].get_secret_value() == "correct horse"
        assert found["empty"].get_secret_value() == ""


@scenario
async def test_numpy_arrays(env: Env) -> None:
    """Columns-first, strided, empty and 0-dimensional arrays keep kind, shape and values (langgraph #5035, #8746)."""
    np = pytest.importorskip("numpy")
    grid = np.linspace(-2, 2, 30, dtype="float32").reshape(5, 6)
    arrays = {
        "rows": grid,
        "columns": np.asfortranarray(grid),
        "view": grid[::-2, 1::3],
        "turned": grid.T,
        "bytes": np.array([[-128], [127]], "int8"),
        "flags": np.array([True, False]),
        "complex": np.array([1 + 2j]),
        "none": np.empty((3, 0), "float64"),
        "single": np.array(7),
    }
    for found in await there_and_back(env, arrays):
        for name, array in arrays.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
            assert np.array_equal(found[name], array), name


@scenario
async def test_a_serializer_with_pickle_is_used_for_everything(env: Env) -> None:
    """State, writes and metadata go through the saver's own serde, with its type tags (langgraph #4322, #5057)."""
    # msgpack knows neither of these; pickle does.
    state = {"x": range(1, 9, 2), "y": 3 - 4j, "z": "text"}
    serde = JsonPlusSerializer(pickle_fallback=True)
    store = env.open(serde=serde)
    at = await store.put(config(), checkpoint(0, state), metadata(span=range(2)))
    await store.put_writes(at, [("x", range(5)), ("y", 0j)], "task")
    head = await store.put(at, checkpoint(1, state), metadata(1, span=range(3)))
    reader = env.open(serde=serde)
    listed = await reader.list(config(), filter={"span": range(2)})
    for found in (await reader.get(at), *listed):
        assert found.checkpoint["channel_values"] == state
        assert found.metadata["span"] == range(2)
        assert written(found) == [range(5), 0j]
    assert len(listed) == 1
    assert (await reader.history(head, ["x"]))["x"] == {"writes": [("task", "x", range(5))], "seed": range(1, 9, 2)}


@scenario
async def test_bytes_and_bytearrays(env: Env) -> None:
    """Raw bytes are exact, and a bytearray is taken with its content (langgraph #1168)."""
    state = {"bytes": b"\x00\xfe\n", "array": bytearray(b"\x00ab"), "nested": [b"", bytearray(b"c"), {"k": b"\x80"}]}
    for found in await there_and_back(env, state):
        assert type(found["bytes"]) is bytes
        assert found["bytes"] == b"\x00\xfe\n"
        assert bytes(found["array"]) == b"\x00ab"
        assert [bytes(value) for value in found["nested"][:2]] == [b"", b"c"]
        assert found["nested"][2] == {"k": b"\x80"}
