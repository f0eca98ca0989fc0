"""An async agent on your own store; each start of the program goes on with the same thread.

python examples/async_agent.py                                             # embedded, forgets at the end
python examples/async_agent.py "mongodb://localhost:27017/agents"          # or set MONGODB_URI
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from docstore_saver import AsyncDocStoreSaver

THREAD: RunnableConfig = {"configurable": {"thread_id": "async-agent"}}


async def reply(state: MessagesState) -> MessagesState:
    """Where a chat model would stand."""
    said = sum(message.type == "human" for message in state["messages"])
    return {"messages": [AIMessage(f"I have heard {said} of your messages in this thread.")]}


async def main(uri: str) -> None:
    graph = StateGraph(MessagesState).add_node(reply).add_edge(START, "reply")
    async with AsyncDocStoreSaver.from_conn_string(uri, ttl=timedelta(days=30)) as saver:
        agent = graph.compile(checkpointer=saver)
        for text in ("Hello!", "Me again."):
            answer = await agent.ainvoke({"messages": [HumanMessage(text)]}, THREAD)
            print(f"{text}\n  -> {answer['messages'][-1].text}")


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("MONGODB_URI", "memory://")
    asyncio.run(main(given))
