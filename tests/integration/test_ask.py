# SPDX-License-Identifier: Apache-2.0
"""`cloche ask` without a service, against a scripted provider in three wire formats: the loop, what is told back, what goes wrong at a
provider, keys, .env, approval, limits and Ctrl-C."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

import cloche
import pytest
from ask import FIBONACCI, KEY, QUESTION, TOLD, ask, environment, run, start
from provider import FAMILIES, RESET, STALL, Provider, Reply, anthropic, ends, gemini, openai, sse, whole

pytestmark = pytest.mark.needs("native", "python")
family = pytest.mark.parametrize("f", FAMILIES, ids=lambda f: f.name)


def code(text):
    return json.dumps({"code": text})


# ---- the loop ----


@pytest.mark.parametrize("way", ["turn", "whole"])
@family
def test_fibonacci(f, way, no_leftovers):
    turn = getattr(f, way)
    with Provider(turn("I compute.", [("c1", "run_python", FIBONACCI)]), turn("It is 832040.")) as p:
        r = ask(f, p)
    assert (r.returncode, r.out) == (0, "It is 832040.\n"), r
    assert "I compute." in r.err and "[1] run_python: a, b = 0, 1 ..." in r.err and "832040" in r.err and KEY not in r.err
    first, second = p.asked
    assert first.path == f.path and f.told(second.json) == {"c1": TOLD}
    assert f.called(second.json) == [("run_python", json.loads(FIBONACCI))]
    assert QUESTION in json.dumps(first.json)


@family
def test_transcript(f):
    with Provider(f.turn("I compute.", [("c1", "run_python", FIBONACCI)]), f.turn("It is 832040.")) as p:
        r = ask(f, p, "--json")
    t = r.json
    assert r.returncode == 0 and t["ok"] and t["answer"] == "It is 832040." and t["reason"] == "answered" and t["error_code"] is None
    assert t["provider"] == f.name and t["model"] == f.model and t["requests"] == 2 and t["usage"] == {"input_tokens": 22, "output_tokens": 14}
    (call,), last = t["steps"][0]["calls"], t["steps"][1]
    assert t["steps"][0]["text"] == "I compute." and call["tool"] == "run_python" and call["arguments"] == json.loads(FIBONACCI)
    assert call["text"] == TOLD and not call["is_error"] and call["approval"] == "not needed" and call["result"]["exit_code"] == 0
    assert last["calls"] == [] and last["stop"] == "end" and t["session"].startswith("mcp-")
    assert KEY not in r.out + r.err


@family
def test_parallel_calls(f):
    """All at the same time, told in the order of the calls; a traceback, an unknown tool and wrong arguments are told like results."""
    slow = code("import time; time.sleep(1); print('slow')")
    calls = [("c1", "run_python", slow), ("c2", "run_python", slow), ("c3", "run_python", code("1 / 0")), ("c4", "no_such_tool", "{}"),
             ("c5", "run_python", '{"cod": 1}'), ("c6", "run_shell", '{"command": "echo hello"}')]
    with Provider(f.turn("", calls), f.turn("Done.")) as p:
        began = time.monotonic()
        r = ask(f, p, "--json", "--cpus", "2")
    told = f.told(p.asked[1].json)
    assert r.returncode == 0 and time.monotonic() - began < 10
    assert list(told) == [c[0] for c in calls]
    assert "slow" in told["c1"] and "slow" in told["c2"]
    assert told["c3"].startswith("exit=1") and "ZeroDivisionError" in told["c3"]
    assert told["c4"] == "no such tool: no_such_tool" and "no argument" in told["c5"] and "hello" in told["c6"]
    assert [c["is_error"] for c in r.json["steps"][0]["calls"]] == [False, False, True, True, True, False]


@pytest.mark.parametrize("f", [anthropic, openai], ids=lambda f: f.name)
@pytest.mark.parametrize("broken", ['{"code": "print(1', "[1]", "nonsense", '{"code": 1, "code": 2}'])
def test_broken_arguments(f, broken):
    """Told to the model; what goes back as the model's own is an object, which the provider takes."""
    with Provider(f.turn("", [("c1", "run_python", broken)]), f.turn("Sorry.")) as p:
        r = ask(f, p)
    assert r.returncode == 0 and r.out == "Sorry.\n"
    assert "arguments" in f.told(p.asked[1].json)["c1"] and f.called(p.asked[1].json) == [("run_python", {})]


def test_calls_that_all_say_index_0():
    """As some servers send parallel calls: whole, each with an id, all with index 0."""
    pieces = [openai.chunk({"tool_calls": [{"index": 0, "id": f"c{i}", "type": "function", "function": {"name": "run_python", "arguments": code(f"print({i})")}}]})
              for i in range(3)]
    with Provider(sse([*pieces, openai.chunk({}, "stop")], done="[DONE]"), openai.turn("Done.")) as p:
        r = ask(openai, p)
    assert r.returncode == 0
    assert {k: v.split("\n")[2] for k, v in openai.told(p.asked[1].json).items()} == {"c0": "0", "c1": "1", "c2": "2"}


def test_content_as_blocks():
    body = json.loads(openai.whole("x").pieces[0])
    body["choices"][0]["message"]["content"] = [{"type": "text", "text": "It is "}, "832040", {"type": "image_url"}, {"type": "text", "text": "."}]
    with Provider(body) as p:
        assert ask(openai, p).out == "It is 832040.\n"


def test_thinking_goes_back():
    """With its signature, and before what follows it."""
    with Provider(anthropic.turn("Text.", [("c1", "run_python", FIBONACCI)], thinking="Let me think."), anthropic.turn("Done.")) as p:
        r = ask(anthropic, p)
    thought, text, call = p.asked[1].json["messages"][1]["content"]
    assert thought == {"type": "thinking", "thinking": "Let me think.", "signature": "c2ln"} and text == {"type": "text", "text": "Text."}
    assert call["input"] == json.loads(FIBONACCI) and "Let me think" not in r.out + r.err


def test_signatures_go_back():
    with Provider(gemini.turn("Text.", [("c1", "run_python", FIBONACCI)]), gemini.turn("Done.")) as p:
        ask(gemini, p)
    text, call = p.asked[1].json["contents"][1]["parts"]
    assert text == {"text": "Text."} and call["thoughtSignature"] == "c2ln"


def test_gemini_list():
    """What streamGenerateContent answers where alt=sse is not known."""
    with Provider(whole(list(gemini.events("It is 832040.")))) as p:
        assert ask(gemini, p).out == "It is 832040.\n"


@family
def test_no_text(f):
    with Provider(f.turn("")) as p:
        r = ask(f, p)
    assert r.returncode == 0 and r.out.startswith("[no text in the final message]"), r


def test_pause_goes_on():
    with Provider(anthropic.turn("Half.", stop="pause_turn"), anthropic.turn("Whole.")) as p:
        r = ask(anthropic, p)
    assert r.out == "Whole.\n" and p.asked[1].json["messages"][1]["content"] == [{"type": "text", "text": "Half."}]


def test_question_from_stdin_and_system():
    with Provider(openai.turn("Yes.")) as p:
        r = run(["--system", "Be brief.", "-"], environment(openai, p), stdin=b"Is it?\n")
    assert r.out == "Yes.\n" and p.asked[0].json["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it?\n"}]


@family
def test_tools_are_chosen(f):
    with Provider(f.turn("", [("c1", "run_shell", '{"command": "true"}')]), f.turn("Done.")) as p:
        ask(f, p, "--tools", "run_python")
    assert "run_shell" not in json.dumps(p.asked[0].json["tools"]) and f.told(p.asked[1].json)["c1"] == "no such tool: run_shell"


def test_options_of_sandboxes():
    with Provider(openai.turn("", [("c1", "run_python", code("import os; print(os.environ['A'], os.listdir('/data'))"))]), openai.turn("Done.")) as p:
        r = ask(openai, p, "--env", "A=b", "--memory", "64m", "-v", f"{cloche.TOP}/docs:/data:ro", "--text", "plain", "--run-timeout", "7s")
    assert r.returncode == 0 and openai.told(p.asked[1].json)["c1"].startswith("b [")
    assert "At most 7 seconds and 64 MiB" in p.asked[0].json["tools"][0]["function"]["description"]


def test_run_timeout_is_told():
    with Provider(openai.turn("", [("c1", "run_python", code("while True: pass"))]), openai.turn("Done.")) as p:
        r = ask(openai, p, "--run-timeout", "1s", "--json")
    assert r.returncode == 0 and openai.told(p.asked[1].json)["c1"].startswith("exit=124") and r.json["steps"][0]["calls"][0]["result"]["timed_out"]


# ---- limits ----


@family
def test_max_steps(f):
    with Provider(*(f.turn("Again.", [(f"c{i}", "run_python", code("print(1)"))]) for i in range(5))) as p:
        r = ask(f, p, "--max-steps", "3", "--json")
    assert r.returncode == 125 and len(p.asked) == 3
    assert (r.json["reason"], r.json["error_code"], r.json["retryable"]) == ("max_steps", "MODEL_COMPLETION_FAILED", False)
    assert len(r.json["steps"]) == 3 and "--max-steps" in r.json["message"]


@family
def test_cut_answer(f):
    with Provider(f.turn("It is 83", stop=f.cut)) as p:
        r = ask(f, p, "--max-tokens", "5")
    assert r.returncode == 125 and r.out == "It is 83\n" and "--max-tokens" in r.err
    assert "5" in [str(v) for v in (p.asked[0].json.get("max_tokens"), p.asked[0].json.get("generationConfig", {}).get("maxOutputTokens"))]


@family
def test_refused_answer(f):
    with Provider(f.turn("", stop=f.refusal)) as p:
        r = ask(f, p, "--json")
    assert r.returncode == 125 and r.json["reason"] == "refused" and r.json["error_code"] == "MODEL_COMPLETION_FAILED"


def test_timeout(no_leftovers):
    with Provider(openai.turn("", [("c1", "run_shell", '{"command": "sleep 60"}')])) as p:
        began = time.monotonic()
        r = ask(openai, p, "--timeout", "2s", "--run-timeout", "50s", "--json")
    assert r.returncode == 125 and r.json["reason"] == "timeout" and time.monotonic() - began < 10


# ---- what goes wrong at a provider ----


def failed(f, reply, *args, times=1, words="", retryable=None, requests=None):
    """It is MODEL_COMPLETION_FAILED, in exit status, transcript and words; returns the transcript."""
    with Provider(*[reply] * times) as p:
        r = ask(f, p, "--json", *args)
    assert r.returncode == 125 and r.json["reason"] == "failed" and r.json["error_code"] == "MODEL_COMPLETION_FAILED", r
    assert words in r.json["message"] and f.model in r.json["message"], r.json["message"]
    assert len(r.err.splitlines()) <= 2 and r.json["message"][:60] in r.err and KEY not in r.out + r.err
    assert retryable in (None, r.json["retryable"]), r.json
    assert requests in (None, len(p.asked)), len(p.asked)
    return r.json


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
@family
def test_refused_requests_are_not_repeated(f, status):
    failed(f, f.error(status, "not so"), words="not so", retryable=False, requests=1)


def test_advice():
    assert f"check the key in {openai.key}" in failed(openai, openai.error(401))["message"]
    assert "BASE_URL" in failed(openai, openai.error(404))["message"]
    assert "redirects are not followed" in failed(openai, Reply("", 302, Location="http://127.0.0.1:9/"))["message"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_what_is_temporary_is_tried_again(status):
    f = anthropic
    with Provider(f.error(status), f.error(status), f.turn("It is 832040.")) as p:
        r = ask(f, p)
    assert (r.returncode, r.out) == (0, "It is 832040.\n") and len(p.asked) == 3
    pauses = [b.time - a.time for a, b in zip(p.asked, p.asked[1:])]
    assert 0.25 <= pauses[0] <= 1.5 and 0.5 <= pauses[1] <= 3, pauses


def test_tried_again_four_times():
    t = failed(openai, openai.error(503, "busy"), times=9, words="asked 4 times", retryable=True, requests=4)
    assert t["requests"] == 4


def test_retry_after():
    with Provider(openai.error(429, Retry_After="2"), openai.turn("Yes.")) as p:
        r = ask(openai, p)
    assert r.returncode == 0 and p.asked[1].time - p.asked[0].time >= 2
    failed(openai, openai.error(429, Retry_After="3600"), retryable=True, requests=1)


def test_no_time_left_to_try_again():
    with Provider(openai.error(429, Retry_After="20")) as p:
        r = ask(openai, p, "--timeout", "3s", "--json")
    assert r.returncode == 125 and r.json["reason"] == "timeout" and len(p.asked) == 1


def test_nobody_listens():
    with Provider() as p:
        pass
    r = ask(openai, p, "--json")
    assert r.returncode == 125 and r.json["requests"] == 4 and r.json["retryable"] and p.url.split("//")[1] in r.json["message"]


def test_reset_before_the_answer_is_tried_again():
    with Provider(RESET, openai.turn("Yes.")) as p:
        assert ask(openai, p).out == "Yes.\n"


@family
def test_cut_connection(f):
    """What has begun is not asked again."""
    failed(f, ends(f.turn("It is a long answer that breaks off somewhere.")), words="broke off", retryable=True, requests=1)
    failed(f, ends(f.turn("It is a long answer that breaks off somewhere."), RESET), retryable=True, requests=1)


@family
def test_stall(f, no_leftovers):
    began = time.monotonic()
    failed(f, ends(f.turn("It is a long answer that stops."), STALL), "--stall-timeout", "1s", words="nothing came for 1 s", requests=1)
    assert time.monotonic() - began < 8


def test_a_slow_answer_is_no_stall():
    reply = sse(openai.events("Slowly."), done="[DONE]", size=300)
    reply.pieces = [p for piece in reply.pieces for p in (piece, 0.4)]
    with Provider(reply) as p:
        assert ask(openai, p, "--stall-timeout", "1s").out == "Slowly.\n"


@pytest.mark.parametrize("body, type", [
    (b"<html>busy</html>", "text/html"), (b"\xff\xfe\x00garbage", "application/json"), (b"data: {\n\n", "text/event-stream"),
    (b"data: \xff\xff\n\n", "text/event-stream"), (b"data: 7\n\n", "text/event-stream"), (b"", "application/json"),
    (b"[" * 100000, "application/json"), (b"{}", "application/json"), (b"\0" * 1000, "text/event-stream"), (b"null", "application/json"),
    (b"data: [DONE]\n\n", "text/event-stream"), (b'{"choices": {"0": 1}}', "application/json"), (b'{"error": {"message": "own"}}', "application/json")])
@family
def test_garbage(f, body, type):
    failed(f, Reply(body, type=type), requests=1)


def test_error_in_a_stream():
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    events = list(anthropic.events("It is"))
    with Provider(sse([events[0], overloaded]), anthropic.turn("Yes.")) as p:  # nothing was said yet
        assert ask(anthropic, p).out == "Yes.\n"
    failed(anthropic, sse([*events[:4], overloaded]), words="busy", requests=1)
    failed(openai, sse([{"error": {"message": "bad"}}]), words="bad", retryable=None, requests=1)


def flood(f, size):
    """An answer of SIZE bytes of text."""
    piece = "x" * 60000
    for e in f.events(piece):
        text = json.dumps(e)
        yield from [f"data: {text}\n\n"] * (size // 30000 if "x" * 20000 in text and "start" not in text else 1)


def memory_of(pid, found):
    try:
        while True:
            for task in [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]:
                for line in Path(f"/proc/{task}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        found[0] = max(found[0], int(line.split()[1]) << 10)
            time.sleep(0.02)
    except OSError:
        pass


@family
def test_ten_megabytes(f):
    with Provider(Reply(flood(f, 10 << 20), type="text/event-stream")) as p:
        process = start([QUESTION], environment(f, p))
        found = [0]
        watch = threading.Thread(target=memory_of, args=(process.pid, found))
        watch.start()
        out, err = process.communicate(timeout=60)
        watch.join()
        sanitized = "asan" in cloche.binary()
    assert process.returncode == 125 and out == b"" and b"more than what is kept" in err, err[-300:]
    assert sanitized or 0 < found[0] < 64 << 20, found


def test_ten_megabytes_in_one_line():
    failed(openai, Reply([b"data: ", *[b"x" * 100000] * 105, b"\n\n"], type="text/event-stream"), words="line", requests=1)
    failed(openai, Reply([b'{"a": "', *[b"x" * 100000] * 105, b'"}']), words="longer", requests=1)
    failed(openai, Reply([], **{f"X_{i}": "y" * 1000 for i in range(80)}), words="headers", requests=1)


def test_too_many_calls():
    calls = [(f"c{i}", "run_python", code("print(1)")) for i in range(20)]
    with Provider(openai.turn("", calls), openai.turn("Done.")) as p:
        r = ask(openai, p)
    told = openai.told(p.asked[1].json)
    assert r.returncode == 0 and len(told) == 20 and sum("At most 16" in t for t in told.values()) == 4
    failed(openai, openai.turn("", [(f"c{i}", "run_python", "{}") for i in range(65)]), words="calls", requests=1)


# ---- temperature ----


def test_temperature():
    with Provider(openai.turn("Yes."), openai.turn("Yes.")) as p:
        ask(openai, p)
        ask(openai, p, "--temperature", "0.5")
    assert [q.json["temperature"] for q in p.asked] == [0, 0.5]


def test_a_model_without_temperature():
    """The default is ours, so it is left out when a model refuses it; what somebody asked for is not."""
    no = anthropic.error(400, "`temperature` is deprecated for this model.")
    with Provider(no, anthropic.turn("", [("c1", "run_python", FIBONACCI)]), anthropic.turn("Yes.")) as p:
        r = ask(anthropic, p)
    assert r.out == "Yes.\n" and ["temperature" in q.json for q in p.asked] == [True, False, False] and "takes no temperature" in r.err
    failed(anthropic, no, "--temperature", "0", words="deprecated", requests=1)


# ---- whose model, which key ----


@pytest.mark.parametrize("model, f, name", [
    ("anthropic/some-model", anthropic, "some-model"), ("anthropic:x", anthropic, "x"), ("claude-x", anthropic, "claude-x"),
    ("openai/llama3", openai, "llama3"), ("openai:a/b", openai, "a/b"), ("gpt-9", openai, "gpt-9"), ("o3-mini", openai, "o3-mini"),
    ("gemini/gemini-scripted", gemini, "gemini-scripted"), ("google_genai:gemini-scripted", gemini, "gemini-scripted"),
    ("llama3.2:3b", openai, "llama3.2:3b"), ("org/model", openai, "org/model")])
def test_models(model, f, name):
    with Provider(f.turn("Yes.")) as p:
        r = run(["--model", model, "--base-url", p.url + f.base, "--json", QUESTION], environment())
    assert r.returncode == 0 and r.json["provider"] == f.name and r.json["model"] == name, r
    assert p.asked[0].path == f.path and p.asked[0].json.get("model", name) == name
    assert not [h for h in p.asked[0].headers if h.lower() in ("authorization", "x-api-key", "x-goog-api-key")]


@pytest.mark.parametrize("f, header", [(anthropic, "x-api-key"), (openai, "authorization"), (gemini, "x-goog-api-key")], ids=lambda x: getattr(x, "name", ""))
def test_keys(f, header):
    with Provider(f.turn("Yes.")) as p:
        assert ask(f, p).returncode == 0
    assert {k.lower(): v for k, v in p.asked[0].headers.items()}[header] == ("Bearer " if f is openai else "") + KEY
    assert KEY not in p.asked[0].path and KEY.encode() not in p.asked[0].body


def test_unknown_models_and_missing_keys():
    r = run(["--model", "llama3", "--json", QUESTION], environment())
    assert r.returncode == 125 and "llama3" in r.json["message"] and "base-url" in r.json["message"]
    r = run(["--json", QUESTION], environment())
    assert r.returncode == 125 and "ANTHROPIC_API_KEY" in r.json["message"] and r.json["error_code"] == "MODEL_COMPLETION_FAILED"
    assert r.json["model"] == "claude-opus-4-8"
    for bad in ("a b", "a\r\nX: y", "é"):
        r = run(["--model", "gpt-1", QUESTION], environment(env={"OPENAI_API_KEY": bad}))
        assert r.returncode == 125 and "OPENAI_API_KEY" in r.err and bad not in r.err


def test_no_key_in_the_clear():
    r = run(["--model", "gpt-1", "--base-url", "http://model.example/v1", QUESTION], environment(env={"OPENAI_API_KEY": KEY}))
    assert r.returncode == 125 and "in the clear" in r.err and KEY not in r.err


SEARCH = r"""
import os, glob
print(dict(os.environ))
for f in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):
    try: print(open(f, 'rb').read())
    except OSError: pass
"""


@family
def test_no_key_in_the_sandbox(f, tmp_path):
    """Not in its environment, not in what its processes show, not in the process that makes it, nor in anything printed."""
    with Provider(f.turn("", [("c1", "run_python", code(SEARCH)), ("c2", "run_shell", '{"command": "sleep 1; env; set"}')]), f.turn("Done.")) as p:
        process = start(["--json", QUESTION], environment(f, p, {"OTHER": f"has {KEY} inside"}), cwd=tmp_path)
        seen = []
        while process.poll() is None and len(p.asked) < 2:
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                try:
                    seen.append(Path(f"/proc/{child}/environ").read_bytes() + Path(f"/proc/{child}/cmdline").read_bytes())
                except OSError:
                    pass
            time.sleep(0.05)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    # a child has our environment between vfork and exec, and our command line, too
    made = [s for s in seen if b"\0mcp\0" in s or s.endswith(b"\0mcp")]
    assert made and not [s for s in made if KEY.encode() in s]
    assert KEY.encode() not in out + err and KEY.encode() not in p.asked[1].body
    assert "HOME" in f.told(p.asked[1].json)["c1"]


def test_a_key_is_no_option_of_a_sandbox():
    r = run(["--env", "OPENAI_API_KEY", QUESTION], environment(env={"OPENAI_API_KEY": KEY}))
    assert r.returncode in (2, 125) and "never goes into a sandbox" in r.err


def test_a_provider_that_repeats_the_key():
    t = failed(openai, openai.error(401, f"the key {KEY} is wrong"), words="the key ***")
    assert KEY not in json.dumps(t)


# ---- .env ----


def dotenv(tmp_path, text):
    (tmp_path / ".env").write_text(text)
    return tmp_path


def test_dotenv(tmp_path):
    with Provider(anthropic.turn("Yes."), openai.turn("Yes."), anthropic.turn("Yes.")) as p:
        cwd = dotenv(tmp_path, f"# who\nMODEL=claude-x\nBASE_URL={p.url}\nANTHROPIC_API_KEY='{KEY}'\nOTHER=\"x y\"\n\n")
        r = run([QUESTION], environment(), cwd=cwd)
        assert r.out == "Yes.\n" and p.asked[0].headers["x-api-key"] == KEY
        r = run([QUESTION], environment(env={"MODEL": "gpt-1", "BASE_URL": p.url + "/v1"}), cwd=cwd)  # the environment wins
        assert r.out == "Yes.\n" and p.asked[1].path == openai.path
        (tmp_path / "other").write_text(f"BASE_URL={p.url}\nMODEL=claude-other\n")
        r = run(["--env-file", "other", QUESTION], environment(), cwd=cwd)
        assert r.out == "Yes.\n" and p.asked[2].json["model"] == "claude-other" and "x-api-key" not in p.asked[2].headers
    assert run(["--env-file", "", QUESTION], environment(), cwd=cwd).returncode == 125  # no key is left


def test_dotenv_gets_no_key_of_the_environment(tmp_path):
    """A folder of somebody else's may say where questions go, and would be sent the key."""
    with Provider(anthropic.turn("Yes.")) as p:
        r = run([QUESTION], environment(env={"ANTHROPIC_API_KEY": KEY}), cwd=dotenv(tmp_path, f"BASE_URL={p.url}\n"))
    assert r.out == "Yes.\n" and "x-api-key" not in p.asked[0].headers


@pytest.mark.parametrize("line", ["export A=b", "A = b", "A=b c ", "A", "=b", "1A=b", "A='b", 'A="b"c', "A=b\nA=c", "A=$(touch ran) #", 'A="$X"', "A=b\tc", "A=\0"])
def test_dotenv_is_strict(tmp_path, line):
    r = run([QUESTION], environment(), cwd=dotenv(tmp_path, f"{line}\n"))
    assert r.returncode == 125 and ".env: line" in r.err and not (tmp_path / "ran").exists(), r


def test_dotenv_that_is_none(tmp_path):
    assert "no regular file" in run(["--env-file", "/dev/zero", QUESTION], environment()).err
    assert "No such file" in run(["--env-file", "/nowhere", QUESTION], environment()).err
    os.mkfifo(tmp_path / ".env")
    assert "no regular file" in run([QUESTION], environment(), cwd=tmp_path).err


@pytest.mark.needs("root")
def test_dotenv_of_somebody_else(tmp_path):
    cwd = dotenv(tmp_path, "MODEL=gpt-1\n")
    os.chown(tmp_path / ".env", 12345, 12345)
    assert "belongs to somebody else" in run([QUESTION], environment(), cwd=cwd).err


def test_dotenv_never_in_a_volume(tmp_path):
    cwd = dotenv(tmp_path, f"MODEL=gpt-1\nOPENAI_API_KEY={KEY}\n")
    r = run(["-v", f"{tmp_path}:/data", QUESTION], environment(), cwd=cwd)
    assert r.returncode == 125 and "holds a key" in r.err and KEY not in r.err


# ---- approval ----


def on_terminal(args, env, answers=(), cwd="/"):
    """(status, all that a terminal got) of cloche ask with everything on a new one; each of the answers is typed at one prompt."""
    binary = cloche.binary()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(binary, [binary, "ask", *args], {**env, "TERM": "xterm"})
    got, typed, deadline = b"", 0, time.monotonic() + 40
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            got += data
        if typed < len(answers) and got.count(b"[y/n] ") > typed:
            os.write(terminal, answers[typed])
            typed += 1
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), got.decode("utf-8", "replace").replace("\r\n", "\n")


@family
def test_approve_yes_and_no(f):
    calls = [("c1", "run_python", FIBONACCI), ("c2", "run_python", code("print('never')"))]
    with Provider(f.turn("", calls), f.turn("Done.")) as p:
        status, got = on_terminal(["--approve", QUESTION], environment(f, p), [b"y\n", b"n\n"])
    told = f.told(p.asked[1].json)
    assert status == 0 and told == {"c1": TOLD, "c2": "The user did not approve this call."}
    assert "The model wants run_python" in got and "    for _ in range(30)" in got and "Done." in got


def test_approve_without_a_terminal():
    with Provider(openai.turn("", [("c1", "run_python", FIBONACCI)]), openai.turn("Done.")) as p:
        r = ask(openai, p, "--approve", "--json", "--quiet")
    assert r.returncode == 0 and "nobody to ask" in openai.told(p.asked[1].json)["c1"]
    (call,) = r.json["steps"][0]["calls"]
    assert call["approval"] == "nobody to ask" and call["is_error"] and call["result"] is None


def test_approve_volumes_only(tmp_path):
    """Decided by what the sandbox is given, not by the code."""
    with Provider(*(openai.turn("", [("c1", "run_python", FIBONACCI)]), openai.turn("Done.")) * 2) as p:
        ask(openai, p, "--approve", "network,volumes")
        ask(openai, p, "--approve", "volumes", "-v", f"{tmp_path}:/data:ro")
    assert openai.told(p.asked[1].json)["c1"] == TOLD and "nobody to ask" in openai.told(p.asked[3].json)["c1"]


def test_approve_in_the_background():
    """Who works in the foreground of the terminal is not asked, and what they type is no answer."""
    with Provider(openai.turn("", [("c1", "run_python", FIBONACCI)]), openai.turn("Done.")) as p:
        pid, terminal = pty.fork()
        if pid == 0:
            job = os.fork()
            if job == 0:
                os.setpgid(0, 0)
                os.execve(cloche.binary(), [cloche.binary(), "ask", "--approve", QUESTION], environment(openai, p))
            os._exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
        os.write(terminal, b"y\ny\n")
        deadline, done = time.monotonic() + 20, (0, 0)
        while done[0] == 0 and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    os.read(terminal, 4096)
                except OSError:
                    pass
            done = os.waitpid(pid, os.WNOHANG)
        os.close(terminal)  # ends what waits for the terminal
        assert done[0], "it was stopped by the terminal"
    assert os.waitstatus_to_exitcode(done[1]) == 0 and "nobody to ask" in openai.told(p.asked[1].json)["c1"]


def test_approve_hides_nothing():
    """Control characters of the code are shown, and what was typed before the question is no answer."""
    evil = code("print(1)\r\x1b[2K\x1b[1Aprint(2)")
    with Provider(openai.turn("", [("c1", "run_python", evil)]), openai.turn("Done.")) as p:
        _, got = on_terminal(["--approve=all", QUESTION], environment(openai, p), [b"n\n"])
    assert "\\x0d\\x1b[2K" in got and "\x1b[2K" not in got


# ---- terminal ----


def test_a_terminal_gets_no_escapes():
    evil = "a\x1b]0;title\x07\x1b[31mred\x9b\x7f é"
    with Provider(openai.turn(evil, [("c1", "run_shell", json.dumps({"command": "printf 'x\\033[31m\\007' #\x1b[5m"}))]), openai.turn(evil)) as p:
        status, got = on_terminal([QUESTION], environment(openai, p, {"NO_COLOR": "1"}))
    assert status == 0 and not set("\x1b\x07\x9b\x7f") & set(got), got
    assert got.count("a\\x1b]0;title\\x07\\x1b[31mred\\xc2\\x9b\\x7f é") == 2 and "x\\x1b[31m\\x07" in got


def test_no_color():
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with Provider(openai.turn("", [("c1", "run_python", FIBONACCI)]), openai.turn("Done.")) as p:
            _, got = on_terminal([QUESTION], environment(openai, p, env))
        assert ("\x1b[2m" in got) is coloured


def test_text_comes_as_it_is_made():
    """On a terminal, before the answer is complete; and only once."""
    reply = sse(openai.events("First half, second half."), done="[DONE]", size=1 << 20)
    text = reply.pieces[0]
    cut = text.index(b"\n\n", text.index(b"First")) + 2
    reply.pieces = [text[:cut], 2, text[cut:]]
    with Provider(reply) as p:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(cloche.binary(), [cloche.binary(), "ask", QUESTION], environment(openai, p))
        began, got, first = time.monotonic(), b"", None
        while True:
            try:
                data = os.read(terminal, 4096)
            except OSError:
                break
            got += data
            first = first or (time.monotonic() - began if b"First" in got else None)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert time.monotonic() - began - first > 1 and got.count(b"First half, second half.") == 1


def test_the_document_shows_what_is_seen():
    """docs/ask.md's picture of a terminal, but for the time."""
    text = (cloche.TOP / "docs" / "ask.md").read_text().partition("```text\n")[2].partition("```")[0]
    with Provider(anthropic.turn("I compute it.", [("c1", "run_python", FIBONACCI)]), anthropic.turn("The 30th Fibonacci number is 832040.")) as p:
        status, got = on_terminal([QUESTION], environment(anthropic, p, {"NO_COLOR": "1"}))
    assert status == 0 and re.sub(r"in \d+ ms", "in 34 ms", got) == text


def test_the_document_has_every_option():
    told = (cloche.TOP / "docs" / "ask.md").read_text()
    listed = run(["--help"], environment()).out.partition("options:")[2].partition("--help")[0]
    options = re.findall(r"--([a-z-]+)", listed)
    assert len(options) > 15 and not [o for o in options if f"--{o}" not in told]


def test_quiet():
    with Provider(openai.turn("I compute.", [("c1", "run_python", FIBONACCI)]), openai.turn("It is 832040.")) as p:
        r = ask(openai, p, "--quiet")
    assert (r.out, r.err) == ("It is 832040.\n", "")


# ---- the end ----


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run(how, no_leftovers):
    """The run inside ends, too."""
    with Provider(openai.turn("", [("c1", "run_shell", '{"command": "echo begun; sleep 4711.5"}')])) as p:
        process = start(["--json", "--run-timeout", "60s", QUESTION], environment(openai, p))
        wait_for(lambda: sleeping("4711.5"))
        process.send_signal(how)  # to it alone, as a supervisor would
        out, _ = process.communicate(timeout=20)
    t = json.loads(out)
    assert process.returncode == 130 and t["reason"] == "cancelled" and not t["ok"] and not sleeping("4711.5")


def test_control_c_on_a_terminal(no_leftovers):
    with Provider(openai.turn("", [("c1", "run_shell", '{"command": "sleep 4712.5"}')])) as p:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(cloche.binary(), [cloche.binary(), "ask", "--run-timeout", "60s", QUESTION], environment(openai, p))
        wait_for(lambda: sleeping("4712.5"))
        os.write(terminal, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130 and not sleeping("4712.5")
        os.close(terminal)


def test_interrupted_question(no_leftovers):
    with Provider(ends(openai.turn("It is a long answer."), STALL)) as p:
        process = start([QUESTION], environment(openai, p))
        assert p.stalled.wait(10)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130 and p.gone.wait(10)
        process.communicate()


def test_killed(no_leftovers):
    """Nothing outlives it, even so."""
    with Provider(openai.turn("", [("c1", "run_shell", '{"command": "sleep 4713.5"}')])) as p:
        process = start(["--run-timeout", "60s", QUESTION], environment(openai, p))
        wait_for(lambda: sleeping("4713.5"))
        process.kill()
        process.communicate()
        wait_for(lambda: not sleeping("4713.5"))
        wait_for(lambda: not subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True).stdout)


def test_the_tools_die():
    with Provider(openai.turn("", [("c1", "run_shell", '{"command": "sleep 4714.5"}')])) as p:
        process = start(["--json", "--run-timeout", "60s", QUESTION], environment(openai, p))
        wait_for(lambda: sleeping("4714.5"))
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        out, _ = process.communicate(timeout=20)
        wait_for(lambda: not sleeping("4714.5"))
    t = json.loads(out)
    assert process.returncode == 125 and (t["reason"], t["error_code"]) == ("tools_lost", "SANDBOX_LOST")


def wait_for(condition, timeout=15):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.02)


def sleeping(seconds):
    for d in Path("/proc").glob("[0-9]*"):
        try:
            if (d / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                return True
        except OSError:
            continue
    return False


# ---- wrong usage ----


@pytest.mark.parametrize("args, words", [
    ([], "usage"), (["a", "b"], "usage"), (["--max-steps", "0", "x"], "--max-steps"), (["--max-tokens", "x", "x"], "--max-tokens"),
    (["--temperature", "3", "x"], "--temperature"), (["--temperature", "nan", "x"], "--temperature"), (["--timeout", "25h", "x"], "--timeout"),
    (["--tools", "run_perl", "x"], "run_perl"), (["--approve=code", "x"], "--approve"), ([" "], "empty"), (["--memory", "0", "x"], "memory"),
    (["--system", b"\xff", "x"], "UTF-8"), ([b"\xff"], "UTF-8"), (["--env-file"], "needs a value")])
def test_wrong_usage(args, words):
    r = run([a if isinstance(a, bytes) else a.encode() for a in args], environment())
    assert r.returncode == 2 and words in r.err and r.out == "", r


def test_cloche_ask_by_itself():
    r = subprocess.run([os.path.join(os.path.dirname(cloche.binary()), "cloche-ask")], capture_output=True, text=True)
    assert r.returncode == 125 and "cloche ask" in r.stderr
