"""A process under LANGGRAPH_STRICT_MSGPACK: python strict.py sync|async uri database

Compiling a graph clones the saver there, with a serializer that knows the types of the graph's own state.
"""

from __future__ import annotations

import asyncio
import operator
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from docstore_saver import AsyncDocStoreSaver, DocStoreSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Colour(Enum):
    RED = "red"


class Order(BaseModel):
    number: int


@dataclass
class Line:
    text: str
    colour: Colour
    order: Order


@dataclass
class Stranger:
    """Not in the state's types."""

    text: str


class State(TypedDict, total=False):
    lines: Annotated[list[Line], operator.add]
    messages: Annotated[list[AnyMessage], operator.add]
    large: Line
    anything: Any


LINE = Line("a", Colour.RED, Order(number=1))
LARGE = Line("x" * 50_000, Colour.RED, Order(number=2))


def build(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("first", lambda _: {"lines": [LINE], "large": LARGE, "anything": Stranger("s")})
    graph.add_node("second", lambda _: {"lines": [interrupt(LINE.text)], "messages": [AIMessage("bye")]})
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    compiled = graph.compile(checkpointer=saver)
    require(compiled.checkpointer is not saver, "strict mode clones the saver")
    return compiled


def require(fact: bool, what: str) -> None:  # reads like assert, which -O would drop
    if not fact:
        raise SystemExit(f"not so: {what}")


async def story(make: Any, call: Any) -> None:
    """Three savers, as if in three processes."""
    await call(build(make()), "invoke", {"messages": [HumanMessage("hi")], "lines": []}, CONFIG)
    again = build(make())
    stopped = await call(again, "get_state", CONFIG)
    require(stopped.next == ("second",), "it waits")
    require(stopped.values["lines"] == [LINE], "a dataclass restores as itself")
    require(stopped.values["large"] == LARGE, "so does a large one")
    require(type(stopped.values["large"].order) is Order, "and a model in it")
    require(not isinstance(stopped.values["anything"], Stranger), "a type that the state does not name is not made")
    ended = await call(again, "invoke", Command(resume=LARGE), CONFIG)
    require(ended["lines"] == [LINE, LARGE], "it goes on")
    state = await call(build(make()), "get_state", CONFIG)
    require(state.values["messages"] == ended["messages"], "messages restore")
    require(state.values["lines"] == ended["lines"], "a resume value of the state's type restores")


async def sync_call(graph: Any, method: str, *args: Any) -> Any:
    return getattr(graph, method)(*args)


async def async_call(graph: Any, method: str, *args: Any) -> Any:
    return await getattr(graph, "a" + method)(*args)


async def main(face: str, uri: str, database: str) -> None:
    async with AsyncExitStack() as open_savers:
        savers: list[Any] = [FACES[face].from_conn_string(uri, database) for _ in range(3)]
        for saver in savers:
            await open_savers.enter_async_context(saver)
        await story(savers.pop, sync_call if face == "sync" else async_call)
    sys.stdout.write("all is as it should be")


FACES: dict[str, Any] = {"sync": DocStoreSaver, "async": AsyncDocStoreSaver}

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
