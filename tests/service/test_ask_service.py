# SPDX-License-Identifier: Apache-2.0
"""`cloche ask` by a service: its runs in the audit, kept sandboxes, what a lost service and a Ctrl-C leave behind. Without one: tests/integration/test_ask.py."""
import json
import signal
import time

import cloche
import pytest
from ask import FIBONACCI, KEY, QUESTION, TOLD, ask, environment, start
from provider import FAMILIES, Provider, openai

pytestmark = pytest.mark.needs("native", "python", "service")


@pytest.fixture
def served(service):
    return {"CLOCHE_SOCKET": service.sock}


def wait_for(condition, timeout=15):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.02)


def shell(command):
    return json.dumps({"command": command})


def audit(service, session):
    rows, after = [], 0
    while True:
        page = service.root.get("/v1/audit", after=after, limit=1000)["rows"]
        rows += [r for r in page if r["session"] == session]
        if len(page) < 1000:
            return rows
        after = page[-1]["seq"]


@pytest.mark.parametrize("f", FAMILIES, ids=lambda f: f.name)
def test_audit(f, service, served):
    """Each run is there with the session that the transcript names, and without the key."""
    calls = [("c1", "run_python", FIBONACCI), ("c2", "run_shell", shell("exit 3"))]
    with Provider(f.turn("", calls), f.turn("It is 832040.")) as p:
        r = ask(f, p, "--json", env=served)
    assert r.returncode == 0 and r.json["answer"] == "It is 832040." and f.told(p.asked[1].json)["c1"] == TOLD
    ran = {c["result"]["id"]: c["result"] for c in r.json["steps"][0]["calls"]}
    rows = audit(service, r.json["session"])
    assert len(ran) == 2 and {row["object"] for row in rows if row["action"] == "run.end"} == set(ran), rows
    assert {row["object"] for row in rows if row["action"] == "run.start"} == set(ran)
    assert KEY not in json.dumps(rows) + json.dumps([service.root.get(f"/v1/runs/{i}") for i in ran])


def test_kept_files(service, served):
    """What write_file wrote is there for a run of the session; all is gone with the conversation."""
    one = [("c1", "write_file", json.dumps({"path": "a.txt", "content": "kept"}))]
    two = [("c2", "run_shell", json.dumps({"command": "cat a.txt", "sandbox": "session"})), ("c3", "run_shell", shell("cat a.txt"))]
    with Provider(openai.turn("", one), openai.turn("", two), openai.turn("Done.")) as p:
        r = ask(openai, p, "--json", "--tools", "run_shell,write_file,read_file", env=served)
    told = openai.told(p.asked[2].json)
    assert r.returncode == 0 and told["c2"] == "exit=0\nstdout:\nkept\nstderr:" and told["c3"].startswith("exit=1"), told
    mine = [b for b in service.root.get("/v1/sandboxes", limit=1000)["sandboxes"] if b["session"] == r.json["session"]]
    assert mine and all(b["state"] == "ended" for b in mine)


def test_session(served):
    with Provider(openai.turn("", [("c1", "run_shell", shell("echo kept >b.txt"))]), openai.turn("", [("c2", "run_shell", shell("cat b.txt"))]), openai.turn("Done.")) as p:
        assert ask(openai, p, "--session", env=served).returncode == 0
    assert openai.told(p.asked[2].json)["c2"] == "exit=0\nstdout:\nkept\nstderr:"


def test_interrupted(service, served):
    with Provider(openai.turn("", [("c1", "run_shell", shell("sleep 4721.5"))])) as p:
        process = start(["--json", "--run-timeout", "60s", QUESTION], environment(openai, p, served))
        wait_for(lambda: [r for r in service.root.get("/v1/runs", limit=1000)["runs"] if r["state"] == "running"])
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 130 and json.loads(out)["reason"] == "cancelled"
    wait_for(lambda: not [r for r in service.root.get("/v1/runs", limit=1000)["runs"] if r["state"] == "running"])


def test_a_quota_is_told(service):
    """A refusal of the service is not the model's doing, and is told in general words; the conversation goes on."""
    key = service.key("ask", quota={"sandboxes": 1})
    with Provider(openai.turn("", [(f"c{i}", "run_shell", shell("sleep 1")) for i in range(3)]), openai.turn("Done.")) as p:
        r = ask(openai, p, env={"CLOCHE_SOCKET": f"127.0.0.1:{service.port}", "CLOCHE_API_KEY": key.secret})
    told = list(openai.told(p.asked[1].json).values())
    assert r.returncode == 0 and any(t.startswith("exit=0") for t in told) and any("Too many" in t for t in told), (told, r.err)


def test_direct_uses_none(service, served):
    with Provider(openai.turn("", [("c1", "run_shell", shell("true"))]), openai.turn("Done.")) as p:
        r = ask(openai, p, "--direct", "--json", env=served)
    (call,) = r.json["steps"][0]["calls"]
    assert call["result"]["ok"] and service.root.request("GET", f"/v1/runs/{call['result']['id']}").status == 404
    assert cloche.binary()
