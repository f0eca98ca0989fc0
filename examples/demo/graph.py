"""The demo's graph: a refund desk with a tool step, two checks side by side and a human approval.

    assistant -> tools -> check_history + check_policy -> approval -> answer

A real application differs in one line: it puts a real chat model in place of `ScriptedModel`.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

QUESTION = "My order 1042 arrived broken. I want my money back."


class State(TypedDict, total=False):
    """What the checkpointer keeps."""

    messages: Annotated[list[AnyMessage], add_messages]
    findings: Annotated[list[str], operator.add]
    decision: str


class ScriptedModel(BaseChatModel):
    """A chat model without key or network. It answers from the messages alone, so it needs no memory of its own."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_reply(messages))])


def _reply(messages: list[BaseMessage]) -> AIMessage:
    if not any(isinstance(message, ToolMessage) for message in messages):
        call = {"name": "find_order", "args": {"order_id": 1042}, "id": "call-1"}
        return AIMessage(content="", tool_calls=[call])
    if messages[-1].text == "yes":
        return AIMessage(content="Good news: your 40 EUR are on their way.")
    return AIMessage(content="I am sorry, I cannot refund this order. Shall I send a new one?")


@tool
def find_order(order_id: int) -> str:
    """Look an order up."""
    return f"order {order_id}: a lamp, 40 EUR, delivered 3 days ago"


def build_graph(checkpointer: BaseCheckpointSaver[Any]) -> CompiledStateGraph[State, None, State, State]:
    """Compile the graph on any checkpointer."""
    graph = StateGraph(State)
    graph.add_node("assistant", assistant)
    graph.add_node("tools", ToolNode([find_order]))
    graph.add_node("check_history", check_history)
    graph.add_node("check_policy", check_policy)
    graph.add_node("approval", approval)
    graph.add_node("answer", answer)
    graph.add_edge(START, "assistant")
    graph.add_edge("assistant", "tools")
    for check in ("check_history", "check_policy"):
        graph.add_edge("tools", check)
        graph.add_edge(check, "approval")
    graph.add_edge("approval", "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=checkpointer)


def assistant(state: State) -> State:
    return {"messages": [ScriptedModel().invoke(state["messages"])]}


def check_history(state: State) -> State:
    return {"findings": ["history: no refund in 2 years"]}


def check_policy(state: State) -> State:
    return {"findings": ["policy: broken goods within 14 days are refunded"]}


def approval(state: State) -> State:
    """Stop here until a human has answered; the answer arrives as the value of `interrupt`."""
    decision = interrupt({"question": "Refund 40 EUR for order 1042?", "findings": state["findings"]})
    return {"decision": decision}


def answer(state: State) -> State:
    said = ("human", state["decision"])
    reply = ScriptedModel().invoke([*state["messages"], said])
    return {"messages": [reply]}
