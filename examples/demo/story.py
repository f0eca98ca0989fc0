"""The demo's two halves: up to the human approval, and from there on. Any checkpointer can stand between them."""

from __future__ import annotations

from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot

from examples.demo.graph import QUESTION, State, build_graph
from examples.demo.tree import tree_lines

Graph: TypeAlias = CompiledStateGraph[State, None, State, State]

THREAD: RunnableConfig = {"configurable": {"thread_id": "refund-1042"}}
MARKS = {"input": "the question", "update": "the fork"}


async def until_approval(saver: BaseCheckpointSaver[Any]) -> None:
    """Run the chat until it needs a human."""
    graph = build_graph(saver)
    title("Start", "a chat with a tool call and two checks side by side, until a human has to approve.")
    await saver.adelete_thread("refund-1042")
    await graph.ainvoke({"messages": [HumanMessage(QUESTION)]}, THREAD)
    state = await graph.aget_state(THREAD)
    for message in state.values["messages"]:
        calls = [f"calls {call['name']}({call['args']})" for call in getattr(message, "tool_calls", [])]
        say(message.type, message.text or ", ".join(calls))
    for finding in state.values["findings"]:
        say("check", finding)
    say("waits", asked(state))


async def from_approval(saver: BaseCheckpointSaver[Any]) -> None:
    """Take the thread up where it stopped, go back in it, fork it, show it."""
    graph = build_graph(saver)
    title("Resume", "a new graph, which has only the store; the human says yes and the run goes on where it stopped.")
    say("waits", asked(await graph.aget_state(THREAD)))
    await resume(graph, "yes", THREAD)

    title("Go back in time", "the thread as it was just before the approval.")
    before = await moment_before(graph, "approval")
    say("then", f"{len(before.values['messages'])} messages, no decision, next: {before.next[0]}")

    title("Fork", "from that moment a second branch gets one more finding, and the human says no. The first one stays.")
    finding = {"findings": ["history: a chargeback last week"]}
    fork = await graph.aupdate_state(before.config, finding, as_node="check_history")
    await graph.ainvoke(None, fork)
    say("waits", asked(await graph.aget_state(THREAD)))
    await resume(graph, "no", THREAD)

    title("History", "every checkpoint of the thread as a tree; the fork shows as two branches.")
    snapshots = [snapshot async for snapshot in graph.aget_state_history(THREAD)]
    for line in tree_lines(snapshots, describe):
        print("   ", line)
    await saver.adelete_thread("refund-1042")


async def resume(graph: Graph, decision: str, config: RunnableConfig) -> None:
    say("human", decision)
    state = await graph.ainvoke(Command(resume=decision), config)
    say("ai", state["messages"][-1].text)


async def moment_before(graph: Graph, node: str) -> StateSnapshot:
    """The latest checkpoint at which `node` was about to run."""
    async for snapshot in graph.aget_state_history(THREAD):
        if snapshot.next == (node,):
            return snapshot
    raise LookupError(f"the thread never came to {node}")


def asked(state: StateSnapshot) -> str:
    """The question that the thread waits with."""
    (waiting,) = state.interrupts
    question: str = waiting.value["question"]
    return question


def describe(snapshot: StateSnapshot) -> str:
    """A checkpoint in one line of the tree."""
    metadata = snapshot.metadata or {}
    step, source = metadata.get("step"), metadata.get("source", "")
    follows = ", ".join(snapshot.next)
    line = f"step {step:>2}  " + (f"next: {follows}" if follows else f"end: {last_reply(snapshot)}")
    return line + (f"  ({MARKS[source]})" if source in MARKS else "")


def last_reply(snapshot: StateSnapshot) -> str:
    replies = [message.text for message in snapshot.values["messages"] if isinstance(message, AIMessage)]
    return replies[-1]


def title(name: str, shows: str) -> None:
    print(f"  {name}: {shows}")


def say(who: str, what: str) -> None:
    print(f"    {who:<6} {what}")
