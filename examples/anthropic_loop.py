# SPDX-License-Identifier: Apache-2.0
"""A tool loop with the Anthropic SDK: the model writes code, cloche runs it, the model reads what came out.

    pip install anthropic; export ANTHROPIC_API_KEY=...
    python3 anthropic_loop.py "What is the 30th Fibonacci number? Use code."
"""
import json
import os
import subprocess
import sys

import anthropic

MODEL = os.environ.get("MODEL", "claude-opus-4-8")
TOOLS = json.loads(subprocess.check_output(["cloche", "tools", "--format", "anthropic"]))
client = anthropic.Anthropic()


def run(name, arguments):
    """One call of a tool; always a string."""
    return subprocess.run(["cloche", "tools", "call", name, "-"], input=json.dumps(arguments), text=True, stdout=subprocess.PIPE, check=True).stdout


messages = [{"role": "user", "content": sys.argv[1]}]
for _ in range(20):
    answer = client.messages.create(model=MODEL, max_tokens=4096, tools=TOOLS, messages=messages)
    messages.append({"role": "assistant", "content": answer.content})
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        print("".join(block.text for block in answer.content if block.type == "text"))
        break
    messages.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": c.id, "content": run(c.name, c.input)} for c in calls]})
