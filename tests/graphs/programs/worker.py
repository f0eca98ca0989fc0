"""A process that runs one graph on a server: python worker.py sync|async start|resume uri database [answer]

    plan -> fast + slow (side by side) -> ask (interrupt) -> end

Every node that finishes leaves its name in the state and a line in $WORKER_LOG, which outlives a killed process. With
$WORKER_HANG the node of that name never comes back.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from docstore_saver import AsyncDocStoreSaver, DocStoreSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    done: Annotated[list[str], operator.add]
    payload: str


def build(checkpointer: Any) -> Any:
    graph = StateGraph(State)
    for name in ("plan", "fast", "slow", "end"):
        graph.add_node(name, step(name))
    graph.add_node("ask", ask)
    graph.add_edge(START, "plan")
    for name in ("fast", "slow"):
        graph.add_edge("plan", name)
    graph.add_edge(["fast", "slow"], "ask")
    graph.add_edge("ask", "end")
    graph.add_edge("end", END)
    return graph.compile(checkpointer=checkpointer)


def step(name: str) -> Any:
    def node(state: State) -> Any:
        if os.environ.get("WORKER_HANG") == name:
            note(f"{name} hangs")
            time.sleep(600)
        note(name)
        return {"done": [name]}

    return node


def ask(state: State) -> Any:
    answer = interrupt({"question": "go on?", "done": state["done"]})
    note("ask")
    return {"done": [f"asked: {answer}"]}


def note(text: str) -> None:
    with Path(os.environ["WORKER_LOG"]).open("a") as log:
        log.write(text + "\n")


def value(command: str, answer: str | None) -> Any:
    if command == "start":
        # Large enough to be stored by itself.
        return {"done": ["start"], "payload": "p" * 50_000}
    return Command(resume=answer) if answer is not None else None


def main(face: str, command: str, uri: str, database: str, answer: str | None = None) -> None:
    given = value(command, answer)
    if face == "sync":
        with DocStoreSaver.from_conn_string(uri, database) as saver:
            state = build(saver).invoke(given, CONFIG)
    else:
        state = asyncio.run(run(given, uri, database))
    state["payload"] = len(state["payload"])
    sys.stdout.write(json.dumps(state, default=lambda it: it.value))


async def run(given: Any, uri: str, database: str) -> Any:
    async with AsyncDocStoreSaver.from_conn_string(uri, database) as saver:
        return await build(saver).ainvoke(given, CONFIG)


if __name__ == "__main__":
    main(*sys.argv[1:])
