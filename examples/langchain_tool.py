# SPDX-License-Identifier: Apache-2.0
"""One plain function as a LangChain tool: the code of each call runs in a new sandbox, the answer is always a string.

    pip install langchain langchain-openai; export OPENAI_API_KEY=... MODEL=openai:...
    python3 langchain_tool.py "What is the 30th Fibonacci number? Use code."
"""
import json
import os
import subprocess
import sys

from langchain.agents import create_agent
from langchain.tools import tool


@tool
def run_python(code: str) -> str:
    """Run a Python program in an isolated sandbox and return what it prints. There is no network; nothing is kept between calls."""
    return subprocess.run(["cloche", "tools", "call", "run_python", "-", "--text", "plain"], input=json.dumps({"code": code}), text=True,
                          stdout=subprocess.PIPE, check=True).stdout


agent = create_agent(os.environ["MODEL"], [run_python])
answer = agent.invoke({"messages": [{"role": "user", "content": sys.argv[1]}]})
print(answer["messages"][-1].text or "[no text in the final message]")
