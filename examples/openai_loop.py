# SPDX-License-Identifier: Apache-2.0
"""A tool loop with the OpenAI SDK, for OpenAI and for every server that speaks its Chat Completions (OPENAI_BASE_URL).

    pip install openai; export OPENAI_API_KEY=... MODEL=...
    python3 openai_loop.py "What is the 30th Fibonacci number? Use code."
"""
import json
import os
import subprocess
import sys

import openai

TOOLS = json.loads(subprocess.check_output(["cloche", "tools", "--format", "openai"]))
client = openai.OpenAI()


def run(name, arguments):
    """One call of a tool; always a string, even when the arguments are no JSON."""
    return subprocess.run(["cloche", "tools", "call", name, "-"], input=arguments, text=True, stdout=subprocess.PIPE, check=True).stdout


messages = [{"role": "user", "content": sys.argv[1]}]
for _ in range(20):
    answer = client.chat.completions.create(model=os.environ["MODEL"], tools=TOOLS, messages=messages).choices[0].message
    messages.append(answer)
    if not answer.tool_calls:
        print(answer.content)
        break
    messages += [{"role": "tool", "tool_call_id": c.id, "content": run(c.function.name, c.function.arguments)} for c in answer.tool_calls]
