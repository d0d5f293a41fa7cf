# SPDX-License-Identifier: Apache-2.0
"""The providers' published SDKs as a check of both sides of `cloche ask`: of the scripted provider that its tests use, and of what it asks."""
import copy
import json
import subprocess

import clients
import cloche
import pytest
from ask import FIBONACCI, TOLD, ask
from provider import FAMILIES, Provider, anthropic, gemini, openai

pytestmark = pytest.mark.needs("native", "python")
family = pytest.mark.parametrize("f", FAMILIES, ids=lambda f: f.name)
CALLS = [("c1", "run_python", FIBONACCI), ("c2", "run_shell", '{"command": "false"}')]
STOPS = {"anthropic": ["tool_use", "end_turn"], "openai": ["tool_calls", "stop"], "gemini": ["STOP", "STOP"]}


def drive(*args, stdin=None):
    done = subprocess.run([clients.python(), cloche.TOP / "tests" / "clients" / "drive_ask.py", *args], input=stdin, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@family
def test_the_sdk_reads_the_scripted_provider(f):
    """Streams and whole answers, with parallel calls and without."""
    with Provider(f.turn("I compute.", CALLS), f.turn("It is 832040."), f.whole("I compute.", CALLS), f.whole("It is 832040.")) as p:
        read = json.loads(drive("read", f.name, p.url + f.base, f.model))
    called = ["I compute.", [[i, n, json.loads(a)] for i, n, a in CALLS], STOPS[f.name][0], 11, 7]
    answered = ["It is 832040.", [], STOPS[f.name][1], 11, 7]
    assert read == [called, answered, called, answered]


def requests(f):
    """What cloche asks in a conversation with all that may be in one."""
    more = {"thinking": "Let me think."} if f is anthropic else {}
    calls = [*CALLS, ("c3", "no_such_tool", "{}"), ("c4", "run_python", '{"cod": 1}')]
    # Anthropic's SDK has no temperature any more, as its models have none: what is asked after one refused it.
    refused = [anthropic.error(400, "`temperature` is deprecated for this model.")] if f is anthropic else []
    with Provider(*refused, f.turn("I compute.", calls, **more), f.turn("", CALLS[:1]), f.turn("It is 832040.")) as p:
        r = ask(f, p, "--tools", "run_python,run_shell,write_file")
    asked = [q.json for q in p.asked[len(refused):]]
    assert r.returncode == 0 and f.told(asked[1])["c1"] == TOLD and len(asked) == 3, r
    return asked


@family
def test_the_sdk_types_accept_what_is_asked(f):
    assert drive("check", f.name, stdin=json.dumps(requests(f))) == "checked\n"


@pytest.mark.parametrize("f, spoil", [
    (anthropic, lambda q: q["messages"][2]["content"][0].pop("tool_use_id")), (anthropic, lambda q: q.update(max_token=1)),
    (openai, lambda q: q["messages"][3].pop("tool_call_id")), (openai, lambda q: q["tools"][0].update(name="x")),
    (gemini, lambda q: q["contents"][2]["parts"][0]["functionResponse"].update(result="x")), (gemini, lambda q: q["tools"][0].update(functions=[]))],
    ids=lambda x: getattr(x, "name", ""))
def test_the_check_can_fail(f, spoil):
    asked = copy.deepcopy(requests(f))
    spoil(asked[1])
    done = subprocess.run([clients.python(), cloche.TOP / "tests" / "clients" / "drive_ask.py", "check", f.name], input=json.dumps(asked), capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 1 and ("ValidationError" in done.stderr or "AssertionError" in done.stderr)
