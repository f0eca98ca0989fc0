"""The shortest start: a chat that remembers, on the embedded store. No server, no model, no network.

python examples/quickstart.py
"""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from docstore_saver import DocStoreSaver


def reply(state: MessagesState) -> MessagesState:
    """Where a chat model would stand."""
    said = sum(message.type == "human" for message in state["messages"])
    return {"messages": [AIMessage(f"I have heard {said} of your messages in this thread.")]}


def main() -> None:
    graph = StateGraph(MessagesState).add_node(reply).add_edge(START, "reply")
    with DocStoreSaver.in_memory() as saver:
        chat = graph.compile(checkpointer=saver)
        for thread, text in [("anna", "Hello!"), ("ben", "Hi."), ("anna", "Me again.")]:
            config: RunnableConfig = {"configurable": {"thread_id": thread}}
            answer = chat.invoke({"messages": [HumanMessage(text)]}, config)["messages"][-1]
            print(f"{thread}: {text}\n  -> {answer.text}")
        print(f"{len(list(saver.list(None)))} checkpoints are stored.")


if __name__ == "__main__":
    main()
