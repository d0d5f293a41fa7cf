# SPDX-License-Identifier: Apache-2.0
"""A LangGraph agent that runs its code in cloche: the tools come over MCP.

    pip install langchain langchain-mcp-adapters langchain-openai; export OPENAI_API_KEY=... MODEL=openai:...
    python3 langgraph_agent.py "What is the 30th Fibonacci number? Use code."
"""
import asyncio
import os
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


async def main(question):
    client = MultiServerMCPClient({"cloche": {"transport": "stdio", "command": "cloche", "args": ["mcp"], "env": dict(os.environ)}})
    async with client.session("cloche") as session:  # one server for all calls: what is kept stays
        agent = create_agent(os.environ["MODEL"], await load_mcp_tools(session))
        answer = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})
        print(answer["messages"][-1].text or "[no text in the final message]")


asyncio.run(main(sys.argv[1]))
