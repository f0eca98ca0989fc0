"""Public bug reports about encryption at rest with LangGraph's own EncryptedSerializer."""

from __future__ import annotations

import pytest
from Crypto.Cipher import AES
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from support.builders import checkpoint, config, metadata, written
from support.env import Env, scenario

from docstore_saver.errors import DecryptionError

KEY, OTHER_KEY = bytes(range(32)), bytes(range(100, 132))


def sealing(key: bytes = KEY) -> EncryptedSerializer:
    return EncryptedSerializer.from_pycryptodome_aes(key=key, mode=AES.MODE_GCM)


@scenario
async def test_nothing_of_state_writes_or_metadata_lies_in_clear(env: Env) -> None:
    """Under a cipher no value is stored in clear, nested or large, metadata included (langgraph #3852, #6482)."""
    store = env.open(serde=sealing(), inline_limit=256, indexed_metadata=["owner"])
    state = {
        "iban": "LEAKED-STATE",
        "nested": [{"deep": "LEAKED-NESTED" * 50}],
        "snap": _DeltaSnapshot(["LEAKED-SNAP"]),
    }
    told = metadata(owner="LEAKED-OWNER", more={"deep": ["LEAKED-METADATA"]})
    at = await store.put(config(), checkpoint(0, state), told)
    await store.put_writes(at, [("x", "LEAKED-WRITE"), ("__interrupt__", ["LEAKED-QUESTION" * 50])], "task")
    found = await env.open(serde=sealing()).get(config())
    assert found.checkpoint["channel_values"] == state
    assert (found.metadata["owner"], found.metadata["more"]) == (told["owner"], told["more"])
    assert sorted(written(found), key=len) == [["LEAKED-QUESTION" * 50], "LEAKED-WRITE"]
    stored = env.raw_bytes()
    assert len(stored) > 1000
    assert b"LEAKED" not in stored
    # The measure itself works: without a cipher the words are there.
    await env.open().put(config("clear"), checkpoint(1, state), told)
    assert b"LEAKED-STATE" in env.raw_bytes()


@scenario
async def test_another_key_is_an_error_and_never_data(env: Env) -> None:
    """A saver with the wrong key, or none, gets a DecryptionError from every read (langgraph #8938)."""
    store = env.open(serde=sealing())
    at = await store.put(config(), checkpoint(0, {"log": "v", "big": "b" * 50_000}), metadata(owner="me"))
    await store.put_writes(at, [("log", "w")], "task")
    head = await store.put(at, checkpoint(1, {"x": 1}), metadata(1))
    for wrong in (env.open(serde=sealing(OTHER_KEY)), env.open()):
        for read in (
            wrong.get(config()),
            wrong.get(at),
            wrong.list(config()),
            wrong.list(None, filter={"owner": "me"}),
            wrong.history(head, ["log"]),
        ):
            with pytest.raises(DecryptionError):
                await read
    assert written(await store.get(at)) == ["w"]


@scenario
async def test_threads_from_before_encryption_stay_readable(env: Env) -> None:
    """Encryption that is switched on later reads what lies in clear and seals what is new (langgraph #3852)."""
    plain = env.open()
    state = {"x": "was clear", "big": "c" * 50_000}
    at = await plain.put(config(), checkpoint(0, state), metadata(owner="clear"))
    await plain.put_writes(at, [("x", "clear write")], "task")
    store = env.open(serde=sealing())
    assert written(await store.get(config())) == ["clear write"]
    # The second checkpoint inherits a value that lies in clear.
    new = checkpoint(1, {**state, "x": "NOW SEALED"}, {"x": 2, "big": 1})
    at = await store.put(at, new, metadata(1, owner="NOW SEALED"), {"x": 2})
    await store.put_writes(at, [("x", "NOW SEALED")], "task")
    for reader in (store, env.open(serde=sealing())):
        listed = await reader.list(config())
        assert [item.checkpoint["channel_values"] for item in listed] == [new["channel_values"], state]
        assert [written(item) for item in listed] == [["NOW SEALED"], ["clear write"]]
        assert [item.metadata["owner"] for item in listed] == ["NOW SEALED", "clear"]
    assert b"NOW SEALED" not in env.raw_bytes()
