# SPDX-License-Identifier: Apache-2.0
"""POST /v1/runs: one command in a sandbox that is gone afterwards; its files, artifacts, stream, and what can be read later."""
import base64
import json

import pytest
from contract import at_once, exited, until
from service import joined, outcome


def test_a_command(client):
    r = exited(client.run(["echo", "hi"]))
    assert (r.out, r.err, r.enforced["no_new_privs"]) == (b"hi\n", b"", True)
    assert client.get(f"/v1/sandboxes/{r.sandbox}")["state"] == "ended"
    assert r.sandbox not in [s["id"] for s in client.get("/v1/sandboxes", limit=1000)["sandboxes"]]


@pytest.mark.parametrize("language, code, out", [("python", "import sys; print(sys.argv[1:])", b"['a', 'b']\n"),
                                                 ("bash", "echo \"$@\"", b"a b\n")])
def test_code_with_arguments(client, language, code, out):
    assert exited(client.run(language=language, code=code, args=["a", "b"])).out == out


@pytest.mark.needs("node")
def test_node(client):
    assert exited(client.run(language="node", code="console.log(6 * 7)", memory="512m", cpus=1, timeout=20)).out == b"42\n"


def test_every_option(client):
    r = exited(
        client.run("id -u; id -g; hostname; echo $A; pwd; cat; stat -f -c %b /data", stdin="in\n", memory="64m",
                   memory_swap="64m", cpus=0.5, pids_limit=20, timeout=10, cpu_time=5, idle_timeout=8, max_output=1000,
                   on_output_limit="drop", env={"A": "b"}, workdir="/tmp", tmpfs=["/data:size=1m"], hostname="h1",
                   profile="default", user="1000:1001", image="host", network="none"))
    assert r.out.decode().splitlines()[:6] == ["1000", "1001", "h1", "b", "/tmp", "in"]


def test_files_come_first(client):
    every = bytes(range(256))
    r = exited(
        client.run(
            "cat a d/b; stat -c %a run.sh; ./run.sh; sha256sum /tmp/abs | cut -c1-4",
            files=[{"path": "a", "content": "ä\n"}, {"path": "d/b", "content_base64": base64.b64encode(b"b\n").decode()},
                   {"path": "run.sh", "content": "#!/bin/sh\necho ran\n",
                    "mode": "0755"}, {"path": "/tmp/abs", "content_base64": base64.b64encode(every).decode()}]))
    assert r.out == "ä\nb\n755\nran\n40af\n".encode()


@pytest.mark.parametrize("file",
                         [{"path": "../x", "content": ""}, {"path": "/etc/../x", "content": ""}, {"path": "", "content": ""},
                          {"path": "a"}, {"path": "a", "content": "", "content_base64": ""}, {"path": "a", "content_base64": "*"},
                          {"path": "a", "content": 1}, {"path": "a\0b", "content": ""}, {"path": "a", "content": "", "mode": "9"},
                          {"path": "a", "content": "", "mode": "4755"}, {"path": "a", "content": "", "owner": "root"},
                          {"path": "x" * 5000, "content": ""}, "a", None], ids=str)
def test_files_that_are_none(client, file):
    client.problem(400, "INVALID_REQUEST", "POST", "/v1/runs", json={"command": ["true"], "files": [file]})


def test_output_folder_is_kept(client):
    data = bytes(range(256)) * 1000
    r = exited(
        client.run(
            language="python", output=True, code=
            "import os\nos.makedirs('/output/d e')\nopen('/output/d e/ü.bin', 'wb').write(bytes(range(256)) * 1000)\nopen('/output/t', 'w').write('text')"
        ))
    kept = {a["path"]: a for a in r.artifacts}
    assert set(kept) == {"d e/ü.bin", "t"} and kept["t"]["bytes"] == 4 and kept["t"]["skipped"] is None
    for a in r.artifacts:
        assert a["href"].startswith(f"/v1/runs/{r.id}/artifacts/")
    body = client.expect(200, "GET", kept["d e/ü.bin"]["href"]).body
    assert body == data


def test_artifact_patterns(client):
    r = exited(
        client.run("echo 1 > a.txt; echo 2 > b.bin; mkdir d; echo 3 > d/c.txt; ln -s /etc/passwd l.txt; mkfifo p.txt",
                   artifact=["*.txt", "d/*.txt"]))
    kept = {a["path"]: a for a in r.artifacts if not a["skipped"]}
    assert set(kept) == {"a.txt", "d/c.txt"}
    assert client.expect(200, "GET", kept["d/c.txt"]["href"]).body == b"3\n"


def test_no_artifacts_unless_asked(client):
    r = exited(client.run("echo x > f; ls /output 2>/dev/null; true"))
    assert r.artifacts == []
    client.problem(404, "NOT_FOUND", "GET", f"/v1/runs/{r.id}/artifacts/f")


def test_artifact_paths_do_not_climb(client):
    r = exited(client.run("echo x > /output/f", output=True))
    for path in ("../f", "%2e%2e/f", "..%2f..%2fetc/passwd", "./f", "", "f/", "nosuch", "f%00"):
        a = client.request("GET", f"/v1/runs/{r.id}/artifacts/{path}")
        assert (a.status, a.json["code"]) in ((400, "INVALID_REQUEST"), (404, "NOT_FOUND")), a


def test_read_later(client):
    r = client.run("echo hello; exit 3")
    run = client.get(f"/v1/runs/{r.id}")
    assert (run["kind"], run["state"], run["sandbox"], run["result"]) == ("run", "ended", r.sandbox, r.json)
    assert client.get("/v1/runs", sandbox=r.sandbox)["runs"][0]["id"] == r.id
    assert r.id in [x["id"] for x in client.get("/v1/runs", limit=100)["runs"]]


def test_stream(client):
    with client.stream("POST", "/v1/runs", query={"stream": True}, json=client.body("echo out; echo err >&2; exit 3", {})) as s:
        events = list(s.events())
    assert events[0]["type"] == "started" and events[-1]["type"] == "exited"
    r = exited(outcome(events[-1]["result"], streamed=True), 3)
    assert (events[0]["id"], events[0]["sandbox"]) == (r.id, r.sandbox)
    assert joined(events, "stdout") == b"out\n" and joined(events, "stderr") == b"err\n"


def read_run(client, run):
    return until(lambda: (lambda r: r["state"] == "ended" and r)(client.get(f"/v1/runs/{run}")), what="the end of the run")


def test_a_streaming_client_that_goes_away_cancels(client):
    with client.stream("POST", "/v1/runs", query={"stream": True}, json=client.body("echo here; sleep 100",
                                                                                    {"timeout": 60})) as s:
        events = s.events()
        started = next(events)
        next(events)
        assert client.get(f"/v1/runs/{started['id']}")["state"] == "running"
        assert client.get(f"/v1/runs/{started['id']}")["result"] is None
    r = outcome(read_run(client, started["id"])["result"], streamed=True)
    assert (r.reason, r.error_code) == ("cancelled", "SANDBOX_KILLED")
    assert client.get(f"/v1/sandboxes/{started['sandbox']}")["state"] == "ended"


def test_a_waiting_client_that_goes_away(client):
    """The run goes on to its own end, which can be read."""
    body = json.dumps(client.body("sleep 0.5; echo done; exit 6", {"timeout": 20})).encode()
    with client.socket() as s:
        s.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                  (len(body), body))
        run = until(lambda: [r for r in client.get("/v1/runs", limit=20)["runs"] if r["state"] == "running"],
                    what="the run")[0]["id"]
    r = exited(outcome(read_run(client, run)["result"]), 6)
    assert r.out == b"done\n" and client.get(f"/v1/sandboxes/{r.sandbox}")["state"] == "ended"


def test_twenty_at_once_are_twenty_sandboxes(client):
    results = at_once(lambda i: exited(client.run(f"echo {i}; ls /tmp; touch /tmp/x", timeout=30)), range(20))
    assert [r.out for r in results] == [f"{i}\n".encode() for i in range(20)]
    assert len({r.sandbox for r in results}) == len({r.id for r in results}) == 20


def test_unknown_run(client):
    for path in ("/v1/runs/run_" + "0" * 32, "/v1/runs/run_" + "0" * 32 + "/artifacts/f"):
        client.problem(404, "NOT_FOUND", "GET", path)


def test_options_of_a_sandbox_and_of_the_host_are_refused(client):
    for body in ({"out": "/tmp"}, {"in": ["/etc"]}, {"venv": "/x"}, {"best_effort": True}, {"env_file": ["/etc/passwd"]},
                 {"on_timeout": "pause"}, {"labels": {}}, {"privileged": True
                                                                                       }, {"rm": True}, {"memory-swap": "1g"}):
        client.problem(400, "INVALID_REQUEST", "POST", "/v1/runs", json={"command": ["true"], **body})
