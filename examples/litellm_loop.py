# SPDX-License-Identifier: Apache-2.0
"""A tool loop with LiteLLM, for any of its providers: the model writes code, cloche runs it, the model reads what came out.

    pip install litellm; export OPENAI_API_KEY=... MODEL=openai/...
    python3 litellm_loop.py "What is the 30th Fibonacci number? Use code."
"""
import json
import os
import subprocess
import sys

import litellm

TOOLS = json.loads(subprocess.check_output(["cloche", "tools", "--format", "openai"]))


def run(name, arguments):
    """One call of a tool, with the arguments as the model sent them; always a string."""
    return subprocess.run(["cloche", "tools", "call", name, "-"], input=arguments, text=True, stdout=subprocess.PIPE, check=True).stdout


messages = [{"role": "user", "content": sys.argv[1]}]
for _ in range(20):
    answer = litellm.completion(model=os.environ["MODEL"], messages=messages, tools=TOOLS).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        print(answer.content or "[no text in the final message]")
        break
    for c in answer.tool_calls:
        messages.append({"role": "tool", "tool_call_id": c.id, "content": run(c.function.name, c.function.arguments)})
