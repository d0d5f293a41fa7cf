# SPDX-License-Identifier: Apache-2.0
"""The loops in examples/ with the providers' own SDKs, against a server that answers as each provider's documentation says: a call of
run_python, then another with broken arguments where the wire allows it, then text. What the SDKs send back is held against the
same documentation's shapes."""
import json
import os
import shutil
import subprocess

import clients
import cloche
import pytest
from provider import Provider, openai

pytestmark = pytest.mark.needs("native", "python")
QUESTION = "What is the 30th Fibonacci number? Use code."
CODE = "a, b = 0, 1\nfor _ in range(30): a, b = b, a + b\nprint(a)"


def run(name, tmp_path, _requirements="requirements.txt", **env):
    (tmp_path / "cloche").symlink_to(cloche.binary())
    env = cloche.environment({"CLOCHE_DIRECT": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}", "MODEL": "scripted", **env})
    example = cloche.TOP / "examples" / name
    if name.endswith(".mjs"):  # node looks for packages beside the program
        command = ["node", shutil.copy(example, clients.node("agents"))]
    else:
        command = [clients.python(_requirements), example]
    done = subprocess.run([*command, QUESTION], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_anthropic(tmp_path):
    def message(*content, stop="tool_use"):
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": list(content), "stop_reason": stop,
                "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    call = {"type": "tool_use", "name": "run_python", "input": {"code": CODE}}
    bodies = [message({"type": "text", "text": "I compute."}, {**call, "id": "toolu_1"}, {**call, "id": "toolu_2", "input": {"cod": 1}}),
              message({"type": "text", "text": "It is 832040."}, stop="end_turn")]
    with Provider(*bodies) as p:
        assert run("anthropic_loop.py", tmp_path, ANTHROPIC_BASE_URL=p.url, ANTHROPIC_API_KEY="x") == "It is 832040.\n"
    path, first, second = p.asked[0].path, p.asked[0].json, p.asked[1].json
    assert path == "/v1/messages" and [t["name"] for t in first["tools"]] == ["run_python", "run_node", "run_shell"]
    assert first["tools"][0]["input_schema"]["required"] == ["code"] and first["messages"] == [{"role": "user", "content": QUESTION}]
    good, bad = second["messages"][2]["content"]
    assert good == {"type": "tool_result", "tool_use_id": "toolu_1", "content": "exit=0\nstdout:\n832040\nstderr:\n"}
    assert bad["tool_use_id"] == "toolu_2" and "no argument" in bad["content"]


def completion(message, finish="tool_calls"):
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "scripted",
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **message}}]}


def call(number, arguments, name="run_python"):
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_openai(tmp_path):
    calls = [call(1, json.dumps({"code": CODE})), call(2, '{"code": "print(1'), call(3, "{}", "no_such_tool")]
    with Provider(completion({"tool_calls": calls}), completion({"content": "It is 832040."}, "stop")) as p:
        assert run("openai_loop.py", tmp_path, OPENAI_BASE_URL=p.url + "/v1", OPENAI_API_KEY="x") == "It is 832040.\n"
    path, first, second = p.asked[0].path, p.asked[0].json, p.asked[1].json
    assert path == "/v1/chat/completions" and all(t["type"] == "function" and t["function"]["parameters"] for t in first["tools"])
    answers = {m["tool_call_id"]: m["content"] for m in second["messages"] if m["role"] == "tool"}
    assert answers["call_1"] == "exit=0\nstdout:\n832040\nstderr:\n" and "JSON" in answers["call_2"] and answers["call_3"] == "no such tool: no_such_tool\n"


def test_gemini(tmp_path):
    def candidate(*parts):
        return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", "index": 0}]}
    bodies = [candidate({"functionCall": {"name": "run_python", "args": {"code": CODE}}}), candidate({"text": "It is 832040."})]
    with Provider(*bodies) as p:
        assert run("gemini_loop.py", tmp_path, GOOGLE_GEMINI_BASE_URL=p.url, GEMINI_API_KEY="x") == "It is 832040.\n"
    path, first, second = p.asked[0].path, p.asked[0].json, p.asked[1].json
    assert path.endswith("/models/scripted:generateContent")
    declared = first["tools"][0]["functionDeclarations"]
    assert [d["name"] for d in declared] == ["run_python", "run_node", "run_shell"]
    assert declared[0]["parameters"]["type"] == "OBJECT" and declared[0]["parameters"]["properties"]["code"]["type"] == "STRING"
    (part,) = second["contents"][-1]["parts"]
    assert part["functionResponse"]["name"] == "run_python" and part["functionResponse"]["response"] == {"result": "exit=0\nstdout:\n832040\nstderr:\n"}


@pytest.mark.parametrize("name, model, answer", [("langgraph_agent.py", "openai:scripted", "exit=0\nstdout:\n832040\nstderr:"),
                                                 ("langchain_tool.py", "openai:scripted", "832040"),
                                                 ("openai_agents.py", "scripted", "exit=0\nstdout:\n832040\nstderr:")])
def test_agents(tmp_path, name, model, answer):
    """Frameworks that loop by themselves, with cloche over MCP or as one function."""
    bodies = completion({"tool_calls": [call(1, json.dumps({"code": CODE}))]}), completion({"content": "It is 832040."}, "stop")
    with Provider(*bodies) as p:
        printed = run(name, tmp_path, "requirements-agents.txt", OPENAI_BASE_URL=p.url + "/v1", OPENAI_API_KEY="x", MODEL=model)
    assert printed == "It is 832040.\n"
    assert "run_python" in [t["function"]["name"] for t in p.asked[0].json["tools"]]
    (told,) = (m for m in p.asked[1].json["messages"] if m["role"] == "tool")
    content = told["content"] if isinstance(told["content"], str) else "".join(c["text"] for c in told["content"])
    assert told["tool_call_id"] == "call_1" and (answer in content or answer in json.loads(content)["text"]), told


@pytest.mark.parametrize("name, model, requirements", [
    pytest.param("vercel_ai.mjs", "scripted", None, marks=pytest.mark.needs("node")),
    pytest.param("langgraph_agent.mjs", "scripted", None, marks=pytest.mark.needs("node")),
    ("smolagents_tool.py", "scripted", "requirements-more.txt"), ("litellm_loop.py", "openai/scripted", "requirements-more.txt")])
def test_more_agents(tmp_path, name, model, requirements):
    """The same in JavaScript, and frameworks with dependencies of their own."""
    end = openai.whole("It is 832040.")
    if name.startswith("smolagents"):  # its answer is a call, too
        end = openai.whole("", [("call_2", "final_answer", json.dumps({"answer": "It is 832040."}))])
    with Provider(openai.whole("I compute.", [("call_1", "run_python", json.dumps({"code": CODE}))]), end) as p:
        printed = run(name, tmp_path, requirements, OPENAI_BASE_URL=p.url + "/v1", OPENAI_API_KEY="x", MODEL=model, LITELLM_LOCAL_MODEL_COST_MAP="True")
    assert printed == "It is 832040.\n" and len(p.asked) == 2
    assert "run_python" in [t["function"]["name"] for t in p.asked[0].json["tools"]] and "832040" in json.dumps(p.asked[1].json["messages"][-1])
