# SPDX-License-Identifier: Apache-2.0
"""A tool loop with Google's SDK.

    pip install google-genai; export GEMINI_API_KEY=... MODEL=...
    python3 gemini_loop.py "What is the 30th Fibonacci number? Use code."
"""
import json
import os
import subprocess
import sys

from google import genai
from google.genai import types

TOOLS = json.loads(subprocess.check_output(["cloche", "tools", "--format", "gemini"]))
client = genai.Client()
config = types.GenerateContentConfig(tools=[types.Tool.model_validate(t) for t in TOOLS])


def run(name, arguments):
    """One call of a tool; always a string."""
    return subprocess.run(["cloche", "tools", "call", name, "-"], input=json.dumps(arguments), text=True, stdout=subprocess.PIPE, check=True).stdout


contents = [types.Content(role="user", parts=[types.Part(text=sys.argv[1])])]
for _ in range(20):
    answer = client.models.generate_content(model=os.environ["MODEL"], contents=contents, config=config)
    contents.append(answer.candidates[0].content)
    if not answer.function_calls:
        print(answer.text)
        break
    contents.append(types.Content(role="user", parts=[
        types.Part.from_function_response(name=c.name, response={"result": run(c.name, c.args)}) for c in answer.function_calls]))
