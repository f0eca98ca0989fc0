"""Public bug reports about texts: characters that some store reads, refuses, drops or changes."""

from __future__ import annotations

from langchain_core.messages import HumanMessage
from support.builders import checkpoint, config, metadata, pipeline, threads, written
from support.env import Env, scenario


@scenario
async def test_keys_and_names_may_hold_dollars_and_dots(env: Env) -> None:
    """A "$" or "." in a channel, a key, a task or a path is neither refused nor read (mongo-php-driver #790)."""
    state = {"x.y": 1, "$inc": {"$lt": [0]}, "plain": {"$ref": "x", "$id": 7, "x.y": {"$z": {"": 2}}}, "": "no name"}
    told = metadata(**{"$or": ["1"], "cost": {"$eur": 9}, "x.y": {"a.b": 1}, "": 0})
    store = env.open(indexed_metadata=["x.y", "$or", "owner.id"])
    at = await store.put(config(), checkpoint(0, state), {**told, "owner.id": "$me"})
    writes = [("$unset", "w1"), ("x.y", {"$mul": 2}), ("", "w3")]
    await store.put_writes(at, writes, "task.1$", "$path.q")
    found = await env.open().get(config())
    assert found.checkpoint["channel_values"] == state
    assert found.metadata == {**told, "owner.id": "$me"}
    assert found.pending_writes == [("task.1$", channel, value) for channel, value in writes]
    assert threads(await store.list(None, filter={"owner.id": "$me", "": 0})) == ["t"]


@scenario
async def test_nul_characters(env: Env) -> None:
    """A NUL in a message or in metadata breaks neither the thread nor its listing (langgraph #1878, #1885)."""
    store = env.open()
    text = "is it \x00 raining?\x00"
    graph = pipeline(store, say=lambda _: {"answer": HumanMessage(text, id="m"), "trail": ["\x00"]})
    where = config("t", label="left\x00right", **{"k\x00ey": "v"})
    await store.invoke(graph, {"count": 1}, where)
    for reader in (store, env.open()):
        state = (await reader.state(pipeline(reader, say=lambda _: {}), config())).values
        assert (state["answer"].content, state["trail"]) == (text, ["\x00"])
        listed = await reader.list(config())
        assert len(listed) == 3
        # LangGraph itself takes the NUL out of the metadata's own texts, not out of its keys.
        assert {(item.metadata["label"], item.metadata["k\x00ey"]) for item in listed} == {("leftright", "v")}
        assert len(await reader.list(None, filter={"label": "leftright", "k\x00ey": "v"})) == 3
    await store.put(config("deep"), checkpoint(0), metadata(told=["\x00"]))
    assert (await store.get(config("deep"))).metadata["told"] == ["\x00"]
    assert threads(await store.list(None, filter={"told": ["\x00"]})) == ["deep"]


@scenario
async def test_text_beyond_ascii(env: Env) -> None:
    """Every script, joined emoji and combining marks are exact, in names and in filters too (langgraphjs #665)."""
    text = "Grüße — 世界 ประเทศ שלום 𝄞 \U0001f468\u200d\U0001f4bb o\u0308 \u2029 \ufeff \uffff"
    store = env.open()
    at = await store.put(config(), checkpoint(0, {"说": text, "ключ": [text]}), metadata(título=text))
    await store.put_writes(at, [("频", text), ("ö", "precomposed"), ("o\u0308", "combined")], "задача", "道")
    found = await env.open().get(config())
    assert found.checkpoint["channel_values"] == {"说": text, "ключ": [text]}
    assert found.metadata["título"] == text
    assert [task for task, _, _ in found.pending_writes] == ["задача"] * 3
    assert [write[1:] for write in found.pending_writes] == [
        ("频", text),
        ("ö", "precomposed"),
        ("o\u0308", "combined"),
    ]
    assert len(await store.list(None, filter={"título": text})) == 1
    assert await store.list(None, filter={"título": text.replace("o\u0308", "ö")}) == []


@scenario
async def test_a_lone_surrogate_leaves_a_thread_that_works(env: Env) -> None:
    """Half of a surrogate pair is stored with a mark in its place, and the thread goes on (langgraph #580)."""
    store = env.open()
    at = await store.put(config(), checkpoint(0, {"x": "good"}), metadata())
    broken = "before \udc9f after"
    at = await store.put(at, checkpoint(1, {"x": broken, "y": 5}), metadata(1, title=broken))
    await store.put_writes(at, [("x", broken)], "task")
    found = await env.open().get(config())
    values = found.checkpoint["channel_values"]
    assert values["y"] == 5
    for text in (values["x"], found.metadata["title"], written(found)[0]):
        assert text.startswith("before ")
        assert text.endswith(" after")
    await store.put(at, checkpoint(2, {"x": "good again"}), metadata(2))
    newest, _, oldest = [item.checkpoint["channel_values"]["x"] for item in await store.list(config())]
    assert (newest, oldest) == ("good again", "good")
