# SPDX-License-Identifier: Apache-2.0
"""The OpenAI Agents SDK with cloche as its MCP server.

    pip install openai-agents; export OPENAI_API_KEY=... MODEL=...
    python3 openai_agents.py "What is the 30th Fibonacci number? Use code."
"""
import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

set_tracing_disabled(True)


async def main(question):
    server = MCPServerStdio(params={"command": "cloche", "args": ["mcp"], "env": dict(os.environ)}, client_session_timeout_seconds=60)
    async with server:
        agent = Agent(name="coder", instructions="Compute with code.", mcp_servers=[server],
                      model=OpenAIChatCompletionsModel(model=os.environ["MODEL"], openai_client=AsyncOpenAI()))
        print((await Runner.run(agent, question)).final_output)


asyncio.run(main(sys.argv[1]))
