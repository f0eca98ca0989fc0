"""The codec's seam for sealing: LangGraph's stock cipher everywhere, and the context that a binding cipher is given."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ormsgpack
import pytest
from Crypto.Cipher import AES
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import checkpoint, checkpoint_id, config, ids, metadata
from support.env import Env, scenario
from support.stores import Store

from docstore_saver.errors import DecodingError, DecryptionError

KEY = b"an example key with 32 bytes ..."
MODES = {"eax": {}, "gcm": {"mode": AES.MODE_GCM}}
STATE = {"plain": "canary-value", "big": "canary-large" * 40, "log": _DeltaSnapshot(["canary-snapshot"])}


def stock(mode: str = "gcm", key: bytes = KEY) -> EncryptedSerializer:
    return EncryptedSerializer.from_pycryptodome_aes(key=key, **MODES[mode])


async def fill(store: Store) -> Any:
    """Every kind of sealed field; answers the head."""
    at = await store.put(config(), checkpoint(0, STATE), metadata(0, user="canary-user", nested={"a": ["canary-list"]}))
    await store.put_writes(at, [("log", ["canary-write"]), ("big", "canary-large-write" * 40)], "task", "~1")
    versions = {**dict.fromkeys(STATE, 1), "plain": 2}
    new = checkpoint(1, {"plain": "canary-2", "big": STATE["big"]}, versions)
    return await store.put(at, new, metadata(1, user="canary-user", size=2), {"plain": 2})


@pytest.mark.parametrize("mode", MODES)
@scenario
async def test_the_stock_cipher_works_with_every_method(env: Env, mode: str) -> None:
    store = env.open(serde=stock(mode), inline_limit=256)
    head = await fill(store)
    assert b"canary" not in env.raw_bytes()
    reader = env.open(serde=stock(mode))
    found = await reader.get(head)
    assert found.checkpoint["channel_values"] == {**STATE, "plain": "canary-2"}
    assert found.metadata["user"] == "canary-user"
    listed = await reader.list(config())
    assert [item.checkpoint for item in listed] == [found.checkpoint, (await reader.get(listed[1].config)).checkpoint]
    assert [write[2] for write in listed[1].pending_writes] == [["canary-write"], "canary-large-write" * 40]
    history = await reader.history(head, ["log", "big"])
    assert history["log"]["seed"] == STATE["log"]
    assert [write[2] for write in history["big"]["writes"]] == ["canary-large-write" * 40]
    await reader.delete_thread("t")
    assert await reader.get(head) is None


@scenario
async def test_filters_are_decided_after_decoding(env: Env) -> None:
    """No digest of sealed metadata is stored under a stock cipher: unkeyed ones could be guessed."""
    store = env.open(serde=stock())
    await fill(store)
    for document in env.raw["docstore_checkpoints"].find():
        assert (document["facets"], document["facets_by"]) == ([], "none")
    for wanted, expected in (
        ({"user": "canary-user"}, [checkpoint_id(1), checkpoint_id(0)]),
        ({"size": 2.0}, [checkpoint_id(1)]),
        ({"size": None}, [checkpoint_id(0)]),
        ({"nested": {"a": ["canary-list"]}}, [checkpoint_id(0)]),
        ({"user": "other"}, []),
    ):
        assert ids(await store.list(config(), filter=wanted)) == expected
        assert ids(await store.list(None, filter=wanted, limit=1)) == expected[:1]


@scenario
async def test_plain_rows_stay_readable_and_searchable_when_a_cipher_comes(env: Env) -> None:
    plain = env.open()
    await plain.put(config("old"), checkpoint(0, {"x": "old"}), metadata(user="u"))
    sealed = env.open(serde=stock())
    await sealed.put(config("new"), checkpoint(1, {"x": "new"}), metadata(user="u"))
    assert ids(await sealed.list(None, filter={"user": "u"})) == [checkpoint_id(1), checkpoint_id(0)]
    assert (await sealed.get(config("old"))).checkpoint["channel_values"] == {"x": "old"}
    with pytest.raises(DecryptionError, match="no cipher"):
        await plain.get(config("new"))


@scenario
async def test_another_key_is_an_error_and_shows_nothing(env: Env) -> None:
    head = await fill(env.open(serde=stock(), inline_limit=256))
    other = env.open(serde=stock(key=KEY[::-1]))
    for read in (other.get(head), other.list(config()), other.history(head, ["log"])):
        with pytest.raises(DecryptionError) as caught:
            await read
        assert "canary" not in str(caught.value)


@scenario
async def test_a_damaged_row_is_a_decoding_error(env: Env) -> None:
    store = env.open()
    at = await store.put(config(), checkpoint(0, {"x": 1}), metadata())
    env.raw["docstore_checkpoints"].update_one({}, {"$set": {"values.data": b"\xc1"}})
    with pytest.raises(DecodingError):
        await store.get(at)


@scenario
async def test_a_serializer_of_ones_own_is_used_as_it_is(env: Env) -> None:
    """Its type may hold any character, and a subclass of LangGraph's class may do anything in its dumps_typed."""

    class Own(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            kind, data = super().dumps_typed(obj)
            return f"own+{kind}|x", data[::-1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            kind = data[0].removeprefix("own+").removesuffix("|x")
            return super().loads_typed((kind, data[1][::-1]))

    class Loud(EncryptedSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            kind, data = super().dumps_typed(obj)
            return kind, b"loud" + data

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return super().loads_typed((data[0], data[1].removeprefix(b"loud")))

    for thread, serde in (("own", Own()), ("loud", Loud(stock().cipher))):
        store = env.open(serde=serde, inline_limit=256)
        at = await store.put(config(thread), checkpoint(0, STATE), metadata(user="u"))
        await store.put_writes(at, [("log", "w")], "task")
        found = await env.open(serde=serde).get(at)
        assert found.checkpoint["channel_values"] == STATE
        assert found.pending_writes == [("task", "log", "w")]
        assert len(await store.list(config(thread), filter={"user": "u"})) == 1


class Binding:
    """A cipher that binds: it keeps every context and refuses one that it did not seal with."""

    name = "test1"

    def __init__(self) -> None:
        self.sealed: list[tuple[bytes, str]] = []
        self.opened: Counter[str] = Counter()

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        raise AssertionError("a cipher that binds is asked to seal")

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        raise AssertionError("a cipher that binds is asked to open")

    def seal(self, data: bytes, context: bytes, type: str) -> bytes:
        self.sealed.append((context, type))
        return len(context).to_bytes(4) + context + bytes(byte ^ 0x5A for byte in data)

    def open(self, data: bytes, context: bytes, type: str) -> bytes:
        length = int.from_bytes(data[:4])
        if data[4 : 4 + length] != context:
            raise ValueError("bound to another place")
        self.opened[ormsgpack.unpackb(context)[4]] += 1
        return bytes(byte ^ 0x5A for byte in data[4 + length :])


FIELDS = {"core", "values", "metadata", "link", "write", "value"}


def contexts(cipher: Binding) -> list[list[Any]]:
    return [ormsgpack.unpackb(context) for context, _ in cipher.sealed]


@scenario
async def test_every_payload_is_sealed_with_its_context(env: Env) -> None:
    cipher = Binding()
    store = env.open(serde=EncryptedSerializer(cipher), inline_limit=256)
    await fill(store)
    sealed = contexts(cipher)
    assert {context[4] for context in sealed} == FIELDS
    assert all(context[:4] == [1, "", "t", ""] for context in sealed)
    assert all(context[-3] == kind for context, (_, kind) in zip(sealed, cipher.sealed, strict=True))
    payloads = sum(len(payloads_of(doc)) for name in ("checkpoints", "writes", "values") for doc in all_of(env, name))
    assert payloads == len(sealed)
    assert len({bytes(context) for context, _ in cipher.sealed}) == len(sealed), "no two payloads may be exchanged"


def all_of(env: Env, name: str) -> list[dict[str, Any]]:
    return [doc for doc in env.raw[f"docstore_{name}"].find() if doc["_id"] != "settings"]


def payloads_of(document: dict[str, Any]) -> list[str]:
    found = [name for name, value in document.items() if isinstance(value, dict) and "data" in value]
    assert all(document[name]["cipher"] == "test1" for name in found)
    return found


@scenario
async def test_reading_checks_every_context(env: Env) -> None:
    cipher = Binding()
    head = await fill(env.open(serde=EncryptedSerializer(cipher), inline_limit=256))
    reader = env.open(serde=EncryptedSerializer(cipher))
    assert (await reader.get(head)).checkpoint["channel_values"] == {**STATE, "plain": "canary-2"}
    await reader.list(config())
    assert set(cipher.opened) >= FIELDS - {"link"}


BOUND = {
    "checkpoints": {
        "parent_checkpoint_id": checkpoint_id(77),
        "parents": [{"checkpoint_ns": "", "checkpoint_id": "x"}],
        "put_id": "other",
        "run_id": "other",
        "stored": ["plain"],
        "delta": [],
        "facets_by": "plain",
        "facets": ["other"],
        "core.type": "json",
        "values.type": "json",
        "metadata.type": "json",
    },
    "writes": {
        "task_id": "other",
        "task_path": "~9",
        "idx": 7,
        "of": 1,
        "channel": "other",
        "run_id": "other",
        "value.type": "json",
    },
    "values": {"channel": "other", "version": "i:9", "parts": 2, "field": "core", "data.type": "json"},
}


@pytest.mark.parametrize("collection", BOUND)
@scenario
async def test_a_changed_plain_field_is_refused(env: Env, collection: str) -> None:
    """Of every bound field in every document: the reader raises; nothing else is given instead."""
    cipher = Binding()
    await fill(env.open(serde=EncryptedSerializer(cipher), inline_limit=256))
    reader = env.open(serde=EncryptedSerializer(cipher))
    rows = env.raw[f"docstore_{collection}"]
    for document in all_of(env, collection):
        for name, value in BOUND[collection].items():
            rows.update_one({"_id": document["_id"]}, {"$set": {name: value}})
            with pytest.raises(Exception, match=r"decrypt|missing|decoded"):
                await reader.list(config())
            rows.replace_one({"_id": document["_id"]}, document)
    assert len(await reader.list(config())) == 2
