# SPDX-License-Identifier: Apache-2.0
"""A smolagents agent with one plain function: the code of each call runs in a new sandbox, never in this process.

    pip install smolagents openai; export OPENAI_API_KEY=... MODEL=...
    python3 smolagents_tool.py "What is the 30th Fibonacci number? Use code."
"""
import json
import os
import subprocess
import sys

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool


@tool
def run_python(code: str) -> str:
    """Run a Python program in an isolated sandbox and return what it prints. There is no network; nothing is kept between calls.

    Args:
        code: The program. Print what you want to see.
    """
    return subprocess.run(["cloche", "tools", "call", "run_python", "-", "--text", "plain"], input=json.dumps({"code": code}), text=True,
                          stdout=subprocess.PIPE, check=True).stdout


# A CodeAgent would run the model's code by itself; this one only calls tools.
model = OpenAIModel(os.environ["MODEL"], api_base=os.environ.get("OPENAI_BASE_URL"))
print(ToolCallingAgent([run_python], model, max_steps=20, verbosity_level=LogLevel.OFF).run(sys.argv[1]))
