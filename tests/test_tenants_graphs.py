"""Tenants in real graphs, and in long random histories of three tenants with the same ids."""

from __future__ import annotations

import random
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from support.builders import checkpoint, checkpoint_id, metadata
from support.env import Env, scenario
from support.kinds import ASYNC_PYMONGO, MONGOMOCK, MONGOMOCK_MOTOR, PYMONGO
from support.tenants import CURRENT, KEY, WAYS, View, views

from docstore_saver.errors import TenantRequiredError

TENANTS = ["a", "b", "c"]
THREADS = ["t", "u"]
NAMESPACES = ["", "sub:1"]


def _add(left: list[str], right: list[str]) -> list[str]:
    return left + right


class Chat(TypedDict):
    said: Annotated[list[str], _add]


def _ask(state: Chat) -> dict[str, Any]:
    return {"said": [f"asked after {len(state['said'])}"]}


def _approve(_: Chat) -> dict[str, Any]:
    return {"said": [f"approved: {interrupt('ok?')}"]}


def graph_on(saver: Any, approving: Any = _approve) -> Any:
    builder = StateGraph(Chat)
    builder.add_node("ask", _ask)
    builder.add_node("approve", approving)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "approve")
    builder.add_edge("approve", END)
    return builder.compile(checkpointer=saver)


@scenario
async def test_a_graph_with_the_tenant_in_its_config(env: Env) -> None:
    """Two tenants talk in the same thread; interrupt, history, update, fork and resume stay with each."""
    store = env.open(tenant_from=KEY)
    graph = graph_on(store.saver)
    where = {tenant: {"configurable": {"thread_id": "t", KEY: tenant}} for tenant in TENANTS}
    for tenant, at in where.items():
        answer = await store.invoke(graph, {"said": [tenant]}, at)
        assert answer["__interrupt__"][0].value == "ok?"
    for tenant, at in where.items():
        state = await store.state(graph, at)
        assert (state.values["said"], state.next) == ([tenant, "asked after 1"], ("approve",))
        assert state.config["configurable"][KEY] == tenant
        history = await store.state_history(graph, at)
        assert len(history) == 3
        assert {item.config["configurable"][KEY] for item in history} == {tenant}
    await store.invoke(graph, Command(resume="yes"), where["a"])
    await store.update(graph, where["b"], {"said": ["updated"]}, as_node="approve")
    forked = await store.state_history(graph, where["c"])
    await store.invoke(graph, None, forked[-2].config)
    said = {tenant: (await store.state(graph, at)).values["said"] for tenant, at in where.items()}
    assert said == {
        "a": ["a", "asked after 1", "approved: yes"],
        "b": ["b", "asked after 1", "updated"],
        "c": ["c", "asked after 1"],
    }
    clone = store.over(store.saver.for_tenant("a"))
    await clone.delete_thread("t")
    assert (await store.state(graph, where["a"])).values == {}
    assert (await store.state(graph, where["b"])).values["said"] == said["b"]


@pytest.mark.kinds(PYMONGO, ASYNC_PYMONGO, MONGOMOCK)
@scenario
async def test_a_subgraph_with_the_tenant_in_its_config(env: Env) -> None:
    """LangGraph's look into a subgraph's state leaves the key behind: told so, and a callable serves."""
    for tenant_from, works in ((KEY, False), (CURRENT.get, True)):
        CURRENT.set("acme")
        store = env.open(tenant_from=tenant_from, collection_prefix=f"{works}_")
        graph = graph_on(store.saver, graph_on(True))
        at = {"configurable": {"thread_id": "t", KEY: "acme"}}
        await store.invoke(graph, {"said": ["hello"]}, at)
        if works:
            state = await store.state(graph, at, subgraphs=True)
            assert state.tasks[0].state.values["said"][:2] == ["hello", "asked after 1"]
        else:
            with pytest.raises(TenantRequiredError, match="for_tenant"):
                await store.state(graph, at, subgraphs=True)
        await store.invoke(graph, Command(resume="yes"), at)
        assert (await store.state(graph, at)).values["said"][-1] == "approved: yes"


class Histories:
    """Random operations for random tenants, each compared with an InMemorySaver of the tenant's own."""

    def __init__(self, all_views: list[View], seed: int) -> None:
        self.draw = random.Random(seed)
        self.views = all_views
        self.memory = {view.tenant: InMemorySaver() for view in all_views}
        self.heads: dict[tuple[str, str, str], str] = {}
        self.n = 0

    async def step(self) -> None:
        view = self.draw.choice(self.views)
        thread, ns = self.draw.choice(THREADS), self.draw.choice(NAMESPACES)
        operation = self.draw.choices(
            [self.put, self.put_writes, self.get, self.list, self.history, self.delete], [6, 4, 4, 3, 3, 1]
        )[0]
        await operation(view, thread, ns)

    async def put(self, view: View, thread: str, ns: str) -> None:
        self.n += 1
        at, mark = (view.tenant, thread, ns), f"<{view.tenant}{self.n}>"
        values = {"x": mark, "large": mark * 300} | ({"log": _DeltaSnapshot([mark])} if self.n % 4 == 0 else {})
        head = self.heads.get(at)
        # Ids count from 0 in each thread, so that the documents of the tenants would meet if they could.
        place = 0 if head is None else int(head[3:8], 16) + 1
        own = checkpoint(place, values, {"x": self.n, "large": self.n, "log": self.n})
        where, new = view.config(thread, ns, id=head), own["channel_versions"]
        self.memory[view.tenant].put(where, own, metadata(self.n), new)
        await view.store.put(where, own, metadata(self.n), new)
        self.heads[at] = own["id"]

    async def put_writes(self, view: View, thread: str, ns: str) -> None:
        self.n += 1
        head = self.heads.get((view.tenant, thread, ns), checkpoint_id(0))
        mark = f"<{view.tenant}{self.n}>"
        writes = [("log", mark), ("y", mark * 300), ("__interrupt__", mark)][: self.draw.randrange(4)]
        task = f"task-{self.draw.randrange(3)}"
        self.memory[view.tenant].put_writes(view.config(thread, ns, id=head), writes, task)
        await view.store.put_writes(view.config(thread, ns, id=head), writes, task)

    async def get(self, view: View, thread: str, ns: str) -> None:
        found = await view.store.get(view.config(thread, ns))
        expected = self.memory[view.tenant].get_tuple(view.config(thread, ns))
        assert (found and found.checkpoint) == (expected and expected.checkpoint)
        if found:
            assert sorted(found.pending_writes) == sorted(expected.pending_writes)
        self.require_own(view, found)

    async def list(self, view: View, thread: str, ns: str) -> None:
        found = await view.everything()
        expected = list(self.memory[view.tenant].list(None))
        assert sorted(map(self.place, found)) == sorted(map(self.place, expected))
        self.require_own(view, found)

    @staticmethod
    def place(item: Any) -> tuple[str, ...]:
        values = item.config["configurable"]
        return values["thread_id"], values["checkpoint_ns"], values["checkpoint_id"], str(item.checkpoint)

    async def history(self, view: View, thread: str, ns: str) -> None:
        if (view.tenant, thread, ns) in self.heads:
            found = await view.store.history(view.config(thread, ns), ["log", "never"])
            where = view.config(thread, ns)
            assert found == self.memory[view.tenant].get_delta_channel_history(config=where, channels=["log", "never"])
            self.require_own(view, found)

    async def delete(self, view: View, thread: str, ns: str) -> None:
        self.memory[view.tenant].delete_thread(thread)
        await view.delete(thread)
        self.heads = {key: head for key, head in self.heads.items() if key[:2] != (view.tenant, thread)}

    def require_own(self, view: View, found: Any) -> None:
        others = [f"<{tenant}" for tenant in TENANTS if tenant != view.tenant]
        assert not [other for other in others if other in str(found)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.kinds(PYMONGO, MONGOMOCK_MOTOR)
@scenario
async def test_random_histories_of_three_tenants(env: Env, way: str) -> None:
    view_of = views(env, way, inline_limit=200)
    histories = Histories([view_of(tenant) for tenant in TENANTS], seed=WAYS.index(way))
    for _ in range(120):
        await histories.step()
