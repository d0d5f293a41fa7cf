# SPDX-License-Identifier: Apache-2.0
"""The network of a service's sandboxes: what is allowed and refused, told in results, objects and the audit, changed while they run,
and what becomes of it when the process that connects, the spawner, or cloched dies. Servers are real ones on loopback, reached by
the operator's `resolve` and `network_private`."""
import contextlib
import http.server
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import cloche
import egress
import pytest
import service as services
from contract import until
from service import outcome

NAMES = {"allowed.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}
POLICY = {"network_private": ["127.0.0.0/8"]}
SECRET = "s3cret-of-the-operator-0123456789"


class Web(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.port, self.asked = self.server_address[1], []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.headers.get("Host"), self.path))
        body = b"hello from outside"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def web():
    w = Web()
    yield w
    w.shutdown()
    w.server_close()


def a_service(**more):
    return services.Service(policy={**POLICY, **more.pop("policy", {})}, more={"resolve": NAMES, **more.pop("more", {})}, **more)


@pytest.fixture(scope="module")
def networked():
    cloche.need("native")
    cloche.need("service")
    with a_service() as one:
        yield one


@pytest.fixture(scope="module")
def client(networked):
    return networked.key("network")


def rule(web, host="allowed.test"):
    return f"{host}:{web.port} within=127.0.0.0/8"


def fetch(web, host="allowed.test", path="/"):
    return ["curl", "-sS", "-f", "-m", "10", f"http://{host}:{web.port}{path}"]


@pytest.fixture
def box(client, web):
    b = client.box(network="allow", allow=[rule(web)])
    yield b
    client.request("DELETE", b.path)


def egress_of(service):
    """Host pids of the processes that connect, and serve."""
    return service.running("cloche-egress")


def network(box):
    return box.expect(200, "GET", "/network").json


def audited(service, box):
    rows = [r for r in service.root.get("/v1/audit", limit=1000)["rows"] if r["object"] == box]
    return [c for r in rows if r["action"] == "network.connections" for c in r["details"]["connections"]]


# ---------------------------------------------------------------------------------------------------- results


def test_a_run_reaches_what_is_allowed(client, web):
    r = client.run(fetch(web), network="allow", allow=[rule(web)])
    assert (r.ok, r.out, r.error_code) == (True, b"hello from outside", None)
    n = r.json["network"]
    assert n["allowed"] == 1 and n["denied"] == [] and n["bytes_received"] > 18 and n["bytes_sent"] > 18
    assert r.enforced["network"] == "egress proxy + netns" and r.enforced["network_denials"] == "observed"


@pytest.mark.parametrize("body", [{"network": "allow"}, {"network": "allow", "allow": []}, {"network": "allow", "allow": ["x.test"]}])
def test_a_refused_run_says_so(client, web, body):
    r = client.run(fetch(web), **body)
    assert (r.reason, r.error_code, r.exit_code, r.retryable) == ("exited", "SANDBOX_NETWORK_DENIED", 22, False)
    assert r.limits_hit == ["network_denied"] and r.json["network"]["denied"] == [{"host": "allowed.test", "port": web.port, "count": 1}]
    assert f"allowed.test:{web.port}" in r.message and f"allowed.test:{web.port}" in r.model_message


def test_refusals_that_did_not_matter(client, web):
    """The command succeeded: no error, but it is told."""
    r = client.run(["sh", "-c", f"curl -sf http://other.test:{web.port}/; true"], network="allow", allow=[rule(web)])
    assert (r.ok, r.error_code, r.limits_hit) == (True, None, ["network_denied"])
    r = client.run(["sh", "-c", "exit 3"], network="allow")
    assert (r.error_code, r.limits_hit, r.json["network"]["denied"]) == ("COMMAND_FAILED", [], [])


def test_without_a_network_nothing_is_observed(client, web):
    r = client.run(fetch(web))
    assert r.error_code == "COMMAND_FAILED" and r.enforced["network_denials"] == "not observed" and r.enforced["network"] == "netns"
    assert r.json["network"]["capture"] is None if "capture" in r.json["network"] else True


def test_with_a_service_and_without_it_is_the_same(networked, client, web):
    """The same command, told the same way by both."""
    def told(r):
        return (r["ok"], r["reason"], r["error_code"], r["exit_code"], r["limits_hit"], r["message"], r["model_message"],
                [(d["host"], d["port"]) for d in r["network"]["denied"]])
    there = client.run(fetch(web, "evil.test"), network="allow", allow=[rule(web)]).json
    done = subprocess.run([cloche.binary(), "run", "--direct", "--json", "--network", "allow", "--allow", rule(web), "--",
                           *fetch(web, "evil.test")], capture_output=True, env=cloche.environment(), timeout=30)
    import json
    assert told(json.loads(done.stdout)) == told(there)


def test_every_connection_is_in_the_audit(networked, client, web):
    r = client.run(["sh", "-c", f"for i in 1 2 3; do curl -sf http://allowed.test:{web.port}/private?token=abc; done;"
                    f" curl -sf http://other.test:{web.port}/x; true"], network="allow", allow=[rule(web)])
    rows = audited(networked, r.json["sandbox"])
    allowed = [c for c in rows if c["verdict"] == "allowed"]
    assert sum(c["count"] for c in allowed) == 3 and {c["host"] for c in allowed} == {"allowed.test"}
    assert {c["address"] for c in allowed} == {"127.0.0.1"} and all(c["rule"].startswith("allow allowed.test") for c in allowed)
    assert sum(c["bytes_received"] for c in allowed) >= 3 * 18
    denied = [c for c in rows if c["verdict"] == "denied"]
    assert [(c["host"], c["port"], c["count"]) for c in denied] == [("other.test", web.port, 1)]
    assert "token=abc" not in str(rows)
    assert networked.root.get("/v1/audit/verify")["ok"] is True


def test_many_different_connections_are_counted_all(networked, client, web):
    """A row of the audit names 64 that differ, and has the others together."""
    code = """
import socket
for i in range(150):
    s = socket.create_connection(("127.0.0.1", 3128), 20)
    s.sendall(b"CONNECT n%d.test:443 HTTP/1.1\\r\\nHost: n%d.test:443\\r\\n\\r\\n" % (i, i))
    assert b" 403 " in s.recv(4096)
"""
    r = client.run(["/usr/bin/python3", "-c", code], network="allow")
    assert (r.reason, r.exit_code) == ("exited", 0), r

    def rows():
        return [row["details"] for row in networked.root.get("/v1/audit", limit=1000)["rows"]
                if row["object"] == r.json["sandbox"] and row["action"] == "network.connections"]
    until(lambda: sum(c["count"] for d in rows() for c in d["connections"]) + sum(d["more"] for d in rows()) == 150, 20)
    named = [[c for c in d["connections"] if c["host"]] for d in rows()]
    assert max(map(len, named)) == 64 and all(c["count"] == 1 for row in named for c in row), rows()


def test_exec_is_told_what_happened_during_it(box, web):
    first = box.exec(fetch(web, "one.test"))
    second = box.exec(fetch(web))
    third = box.exec(fetch(web, "three.test"))
    assert [d["host"] for d in first.json["network"]["denied"]] == ["one.test"] and first.error_code == "SANDBOX_NETWORK_DENIED"
    assert second.ok and second.json["network"]["denied"] == [] and second.limits_hit == []
    assert [d["host"] for d in third.json["network"]["denied"]] == ["three.test"]


def test_the_object_counts_and_the_resource_shows(box, web):
    box.exec(fetch(web))
    box.exec(fetch(web, "one.test"))
    n = network(box)
    assert (n["mode"], n["allow"], n["state"]) == ("allow", [rule(web)], "serving") and n["capture"] in ("redirect", "ports")
    assert n["usage"]["allowed"] == 1 and n["usage"]["denied"] == 1 and n["usage"]["bytes"] > 0 and n["usage"]["open"] == 0
    assert [(r["host"], r["port"]) for r in n["refused"]] == [("one.test", web.port)] and n["refused"][0]["why"]
    assert box.object()["usage"]["network"]["denied"] == 1
    ended = box.kill()
    assert until(lambda: box.client.get(box.path)["usage"]["network"])["allowed"] == 1 and ended


def test_metrics(networked, box, web):
    def counted():
        text = networked.root.request("GET", "/metrics").body.decode()
        return {v: int(line.split()[1]) for line in text.splitlines() for v in ("allowed", "denied")
                if line.startswith(f'cloche_connections_total{{verdict="{v}"}}')}
    before = counted()
    box.exec(fetch(web))
    box.exec(fetch(web, "one.test"))
    after = counted()
    assert {v: after[v] - before[v] for v in after} == {"allowed": 1, "denied": 1}


# ----------------------------------------------------------------------------------------------------- live change


def test_rules_change_while_it_runs(networked, box, web):
    assert not box.exec(fetch(web, "other.test")).ok
    n = box.expect(200, "PUT", "/network", json={"mode": "allow", "allow": [rule(web, "other.test")]}).json
    assert n["allow"] == [rule(web, "other.test")]
    assert box.exec(fetch(web, "other.test")).ok and not box.exec(fetch(web)).ok
    box.expect(200, "PUT", "/network", json={"mode": "none"})
    assert not box.exec(fetch(web, "other.test")).ok and network(box)["mode"] == "none"
    box.expect(200, "PUT", "/network", json={"mode": "allow", "allow": [rule(web)], "deny": ["other.test"]})
    assert box.exec(fetch(web)).ok
    changes = [r for r in networked.root.get("/v1/audit", limit=1000)["rows"]
               if r["action"] == "network.change" and r["object"] == box.id]
    assert [c["details"]["mode"] for c in changes] == ["allow", "none", "allow"]


OLD = "; the old rules hold"
LISTS = [({"allow": ["*"]}, 400), ({"allow": [""]}, 400), ({"allow": ["http://"]}, 400), ({"allow": ["a.test:99999"]}, 400), ({"allow": "a.test"}, 400),
         ({"allow": ["127.1"]}, 400), ({"deny": ["/"]}, 400), ({"allow": [f"a{i}.test" for i in range(513)]}, 400), ({"rules": []}, 400),
         ({"network_bytes": "-1"}, 400), ({"network_connections": 0}, 400), ({"preset": ["no-such"]}, 400),
         ({"allow": ["10.0.0.1:80"]}, 403), ({"allow": ["a.test within=10.0.0.0/8"]}, 403)]


@pytest.mark.parametrize("body,status", LISTS)
def test_bad_rules_are_told_as_at_the_beginning(client, box, web, body, status):
    """Well-formed and wrong: the same status, code and sentence from every route that takes rules; and the old ones hold."""
    told = [client.request(*where, json=dict(body, **more)) for where, more in [
        (("PUT", box.path + "/network"), {"mode": "allow"}), (("POST", "/v1/sandboxes"), {"network": "allow"}),
        (("POST", "/v1/runs"), {"network": "allow", "command": ["true"]})]]
    assert [(t.status, t.json["code"]) for t in told] == [(status, "INVALID_REQUEST" if status == 400 else "FORBIDDEN")] * 3, told
    assert {t.json["detail"].removesuffix(OLD) for t in told} == {told[1].json["detail"]} and told[1].json["detail"]
    assert network(box)["allow"] == [rule(web)] and box.exec(fetch(web)).ok


@pytest.mark.parametrize("body", [{}, [], {"mode": "maybe"}, {"mode": "none", "allow": ["a.test"]}, {"mode": "allow", "network": "allow"}])
def test_what_is_no_rules_leaves_the_old_ones(box, web, body):
    assert box.problem(400, "INVALID_REQUEST", "PUT", "/network", json=body)["detail"]
    assert network(box)["allow"] == [rule(web)] and box.exec(fetch(web)).ok


def test_a_credential_that_is_not_there(client):
    for path, more in ("/v1/sandboxes", {}), ("/v1/runs", {"command": ["true"]}):
        detail = client.problem(400, "INVALID_REQUEST", "POST", path, json={"network": "allow", "credential": ["no-such"], **more})["detail"]
        assert detail == "there is no credential no-such: the operator defines it under credentials: in cloche.yaml"


@pytest.mark.parametrize("body,words", [
    ({"credential": ["no-such"]}, ["credential no-such", "no other credential than it was made with", "make one with it (POST /v1/sandboxes)"]),
    ({"allow": ["GET https://allowed.test/*"]}, ["need TLS to be opened", "made without an authority", "make one with such a rule",
                                                 "name these hosts without method and path"]),
    ({"preset": ["github-read"]}, ["made without an authority"])])
def test_what_a_sandbox_that_runs_cannot_get(box, web, body, words):
    """A secret, and an authority that its programs trust, have to be there from the beginning: refused with what to do instead."""
    detail = box.problem(409, "CONFLICT", "PUT", "/network", json={"mode": "allow", **body})["detail"]
    assert [w for w in words if w not in detail] == [] and detail.endswith(OLD), detail
    assert network(box)["allow"] == [rule(web)] and box.exec(fetch(web)).ok


def test_a_broken_configuration_keeps_the_old_rules(web):
    """Nothing is decided by a file that cannot be read: no new sandbox, no other rules; what runs goes on under its own."""
    with a_service() as one:
        c = one.key()
        b, good = c.box(network="allow", allow=[rule(web)]), one.config.read_text()
        one.config.write_text(good + "policy: [nonsense\n")
        other = {"mode": "allow", "allow": [rule(web, "other.test")]}
        told = [b.problem(503, "UNAVAILABLE", "PUT", "/network", json=other),
                c.problem(503, "SANDBOX_CREATE_FAILED", "POST", "/v1/sandboxes", json={"network": "allow"})]
        assert all("the operator's configuration" in t["detail"] and str(one.config) in t["detail"] for t in told), told
        assert told[0]["detail"].endswith(OLD) and told[0]["retryable"]
        assert b.exec(fetch(web)).ok and not b.exec(fetch(web, "other.test")).ok
        one.config.write_text(good)
        b.expect(200, "PUT", "/network", json=other)
        assert b.exec(fetch(web, "other.test")).ok


def test_quotas(client, web):
    """Of bytes, over all connections, and of connections: what comes behind is refused and told as that."""
    fetches = ["/bin/bash", "-c", f"for i in 1 2 3; do curl -sSf -o /dev/null http://allowed.test:{web.port}/; echo $?; done"]
    for quota, passed in ({"network_connections": 2}, 2), ({"network_bytes": "10"}, 0), ({"network_bytes": "1m", "network_connections": 3}, 3):
        r = client.run(fetches, network="allow", allow=[rule(web)], **quota)
        codes = r.out.decode().split()
        assert codes[:passed] == ["0"] * passed and "0" not in codes[passed:] and len(codes) == 3, (quota, r.json)
        assert (r.json["limits_hit"] == ["network_denied"]) == (passed < 3), (quota, r.json)


def test_one_without_a_network_cannot_get_one(client):
    b = client.box()
    try:
        assert "without a network" in b.problem(409, "CONFLICT", "PUT", "/network", json={"mode": "allow"})["detail"]
        n = network(b)
        assert (n["mode"], n["state"], n["capture"], n["refused"]) == ("none", "none", None, [])
    finally:
        b.kill()


def test_cloche_network(networked, client, web):
    env = cloche.environment({"CLOCHE_SOCKET": f"127.0.0.1:{networked.port}", "CLOCHE_API_KEY": client.secret})

    def cli(*args, status=0):
        r = subprocess.run([cloche.binary(), *args], capture_output=True, env=env, timeout=30)
        assert r.returncode == status, r
        return r.stdout.decode()
    one = cli("create", "--network", "allow", "--allow", rule(web)).strip()
    try:
        assert cli("exec", one, "--", *fetch(web)) == "hello from outside"
        assert f"allow {rule(web)}" in cli("network", "show", one)
        cli("network", "set", one, "--network", "allow", "--allow", "else.test")
        cli("exec", one, "--", *fetch(web), status=22)
        shown = cli("network", "show", one)
        assert "allow else.test" in shown and "allowed.test" in shown and "1 refused" in shown
        cli("network", "set", one, status=125)
        cli("network", "show", one, "--allow", "x.test", status=2)
        cli("network", "hide", one, status=2)
    finally:
        cli("kill", one)


# ------------------------------------------------------------------------------------------------- owners, policy


def test_owners_are_apart(networked, box):
    other = networked.key("stranger")
    assert other.request("GET", box.path + "/network").status == 404
    assert other.request("PUT", box.path + "/network", json={"mode": "open"}).status == 404


def test_the_operators_ceiling(web):
    with a_service(policy={"network": "allow", "network_deny": [f"other.test:{web.port}"]}) as one:
        c = one.key()
        r = c.request("POST", "/v1/sandboxes", json={"network": "open"})
        assert r.status == 403 and "network" in r.json["detail"]
        b = c.box(network="allow", allow=[rule(web), rule(web, "other.test")])
        assert b.exec(fetch(web)).ok and not b.exec(fetch(web, "other.test")).ok
        assert b.request("PUT", "/network", json={"mode": "open"}).status == 403
        b.expect(200, "PUT", "/network", json={"mode": "allow", "allow": [rule(web, "other.test")]})
        assert not b.exec(fetch(web, "other.test")).ok


def test_no_private_addresses_without_the_operator(web):
    with services.Service(more={"resolve": NAMES}) as one:
        c = one.key()
        assert c.request("POST", "/v1/sandboxes", json={"network": "allow", "allow": [rule(web)]}).status == 403
        b = c.box(network="open")  # a name that leads there is refused when it is connected to
        r = b.exec(fetch(web))
        assert r.error_code == "SANDBOX_NETWORK_DENIED", r.json


def test_cloched_never_sees_a_secret(web):
    """What the operator's credentials are is in the spawner and the process that adds them; nowhere in the service's own."""
    credentials = {"one": {"host": "allowed.test", "port": "443", "header": "Authorization", "value": "Bearer {}", "env": "MY_SECRET"}}
    os.environ["MY_SECRET"] = SECRET
    try:
        with a_service(more={"credentials": credentials}) as one:
            cloched = one.running("cloched")[0]
            assert SECRET.encode() not in open(f"/proc/{cloched}/environ", "rb").read()
            b = one.key().box(network="allow", allow=["allowed.test"], credential=["one"])
            assert memory_has(egress_of(one), SECRET)
            assert not memory_has([cloched], SECRET)
            assert SECRET not in one.said() and b.exec(["true"]).ok
    finally:
        del os.environ["MY_SECRET"]


def memory_has(pids, text):
    for pid in pids:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
            for line in maps:
                span, access = line.split()[:2]
                if access[:2] != "rw":
                    continue
                begin, end = (int(x, 16) for x in span.split("-"))
                with contextlib.suppress(OSError, ValueError, OverflowError):
                    mem.seek(begin)
                    if text.encode() in mem.read(end - begin):
                        return True
    return False


# ------------------------------------------------------------------------------------------------------- faults


def test_the_process_has_an_id_of_its_own(networked, client, box):
    cloche.need("root")
    other = client.box(network="allow")
    started = other.start(["sleep", "100"])

    def status(pid, what):
        return next(line.split()[1:] for line in open(f"/proc/{pid}/status") if line.startswith(what))
    mine, others = serving(networked, box), serving(networked, other)
    ids = [set(status(p, "Uid:")) for p in (mine, others)]
    assert all(len(i) == 1 for i in ids) and ids[0] != ids[1] and {"0"} not in ids
    assert all(status(p, "Cap" + c) == ["0000000000000000"] for p in (mine, others) for c in ("Eff:", "Prm:", "Inh:"))
    everybody = {u for p in networked.processes() - {mine, others} for u in status(p, "Uid:")}
    assert started.object()["running"] and not everybody & (ids[0] | ids[1])
    other.kill()


def serving(service, box):
    """The process that connects for this sandbox: its folder says which."""
    mark = (service.folder / "run" / "sandboxes" / box.id / "egress.pid").read_bytes()
    return int.from_bytes(mark[:4], "little")


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def forgotten(service, box):
    """Its end is written down, and released: a service that is stopped before that tells of it when it is started again."""
    until(lambda: not os.path.exists(service.folder / "run" / "sandboxes" / box.id), 15, "its folder to go")


def test_its_death_denies_everything(networked, client, web):
    b = client.box(network="allow", allow=[rule(web)])
    with networked.root.stream("GET", "/v1/events", query={"sandbox": b.id}) as events:
        assert b.exec(fetch(web)).ok
        os.kill(serving(networked, b), signal.SIGKILL)
        events.until(lambda e: e.get("type") == "sandbox.network_gone")
    r = b.exec(fetch(web))
    assert not r.ok and r.out == b""
    assert b.object()["enforced"]["network"] == "netns" and network(b)["state"] == "ended"
    b.problem(409, "CONFLICT", "PUT", "/network", json={"mode": "open"})
    assert b.exec(["echo", "still"]).out == b"still\n"
    b.kill()


def test_what_is_no_host_hides_nothing(client, networked, box, web):
    """Whatever a program asks for, what comes after it is counted, told and audited."""
    forms = ["127.1", "my..host", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "0x7f000001"]
    for form in forms:
        box.exec(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://{form}/ HTTP/1.1\\r\\nHost: {form}\\r\\n\\r\\n' >&3; cat <&3"])
    r = box.exec(fetch(web))
    assert r.ok and r.json["network"]["allowed"] == 1 and network(box)["state"] == "serving"
    assert box.exec(fetch(web, "evil.test")).error_code == "SANDBOX_NETWORK_DENIED"
    rows = audited(networked, box.id)
    assert {r["host"] for r in rows} == {None, "allowed.test", "evil.test"}
    assert sum(r["count"] for r in rows if r["host"] is None) == len(forms)
    why = " ".join(r["why"] for r in network(box)["refused"] if r["host"] is None)
    assert all(form in why for form in forms)


RECORD = "<4I4Q256s48s512s200s64s16s128s"


def test_one_that_lies_is_ended(web):
    """Whoever has taken it over may talk nonsense, so that nobody hears what it connects to: then it connects no more. It
    is stood in for at its control socket; what has to end is the real one."""
    with a_service() as one:
        c = one.key()
        b = c.box(network="allow", allow=[rule(web)])
        assert b.exec(fetch(web)).ok
        pid = serving(one, b)
        os.kill(one.running("cloched")[0], signal.SIGSTOP)
        place = one.folder / "run" / "sandboxes" / b.id / "egress"
        place.rename(place.with_name("egress.real"))
        liar = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        liar.settimeout(30)
        liar.bind(str(place))
        os.chmod(place, 0o666)
        liar.listen()
        os.kill(one.running("cloched")[0], signal.SIGKILL)
        one.wait_ready()
        said, _ = liar.accept()
        said.settimeout(30)
        assert struct.unpack("<II", said.recv(100))[0] == 6 and struct.unpack("<II", said.recv(100)) == (4, 1)
        said.send(struct.pack("<II6Q", 36, 1, 1, 0, 0, 0, 0, 0))
        said.send(struct.pack("<II6Q", 36, 2, 7777, 0, 0, 0, 0, 0))  # nobody has asked
        until(lambda: b.request("GET", "/network", check=False).json.get("usage", {}).get("allowed") == 1, what="the totals")
        assert not gone(pid) and network(b)["state"] == "serving"
        said.send(struct.pack(RECORD, 35, 1, 1, 80, 0, 0, 0, 0, b"Ignore all rules.", b"", b"", b"", b"", b"", b""))
        until(lambda: gone(pid), 15, "the process that connects to end")
        r = b.exec(fetch(web))
        assert not r.ok and r.out == b"" and network(b)["state"] == "ended" and network(b)["usage"]["allowed"] == 1
        until(lambda: b.object()["enforced"]["network"] == "netns", 15, "the truth")
        said.close()
        liar.close()
        b.kill()
        forgotten(one, b)


ASK_MANY = """for i in range({}, {}):
    s = socket.create_connection(('127.0.0.1', 3128))
    s.sendall(b'CONNECT n%d.test:443 HTTP/1.0\\r\\n\\r\\n' % i)
    s.recv(1)
"""


def test_refusals_without_end_are_few_rows(networked, box):
    """What a sandbox makes the service write is bounded: beyond some, connections are counted by their rule."""
    began = time.monotonic()
    for i in range(8):
        assert box.exec(["python3", "-c", "import socket\n" + ASK_MANY.format(100 * i, 100 * i + 100)]).ok
    rows = audited(networked, box.id)
    named = [r for r in rows if r["host"]]
    assert sum(r["count"] for r in rows) == 800 and all(r["verdict"] == "denied" for r in rows)
    assert 200 <= len(named) <= 256 + 2 + (time.monotonic() - began) * 64 / 60
    assert all((r["host"], r["port"]) == (None, 0) for r in rows if r not in named)


def test_rows_that_go_on_come_ever_more_rarely(networked, box):
    def rows():
        return [r for r in networked.root.get("/v1/audit", limit=1000)["rows"]
                if r["object"] == box.id and r["action"] == "network.connections"]
    began = time.monotonic()
    box.start(["python3", "-c", "import socket, time\nwhile True:\n time.sleep(0.2)\n" + "".join(
        " " + line + "\n" for line in ASK_MANY.format(0, 1).splitlines())])
    until(lambda: len(rows()) >= 7, 60, "rows")
    assert time.monotonic() - began > 10


def test_nothing_is_left_when_it_ends(networked, client, web):
    for how in ("DELETE", "exit"):
        b = client.box(network="allow", allow=[rule(web)])
        pid = serving(networked, b)
        b.exec(fetch(web))
        b.kill()
        until(lambda: gone(pid), 15, "the process that connected to end")
        until(lambda: not os.path.exists(networked.folder / "run" / "sandboxes" / b.id), 15, "its folder to go")


@pytest.mark.parametrize("who", [["cloched"], ["cloche-spawner"], ["cloched", "cloche-spawner"]])
def test_it_outlives_the_service(web, who):
    with a_service() as one:
        c = one.key()
        b = c.box(network="allow", allow=[rule(web)])
        assert b.exec(fetch(web)).ok
        pid = serving(one, b)
        for p in [p for name in who for p in one.running(name)]:
            with contextlib.suppress(OSError):  # with its parent
                os.kill(p, signal.SIGKILL)
        one.wait_ready()
        until(lambda: b.request("GET", "", check=False).status == 200, what="the service")
        until(lambda: b.request("GET", "/network", check=False).json.get("state") == "serving", what="the network")
        assert serving(one, b) == pid and not gone(pid)
        assert b.exec(fetch(web)).ok
        r = b.exec(fetch(web, "one.test"))
        assert r.error_code == "SANDBOX_NETWORK_DENIED" and [d["host"] for d in r.json["network"]["denied"]] == ["one.test"]
        more = {"mode": "allow", "allow": [rule(web, "other.test")]}
        until(lambda: b.request("PUT", "/network", json=more).status == 200, what="the spawner")
        assert b.exec(fetch(web, "other.test")).ok and network(b)["usage"]["allowed"] >= 2
        b.kill()
        until(lambda: gone(pid), 15, "the process that connected to end")
        forgotten(one, b)


def test_records_are_kept_while_nobody_listens(web):
    """What was connected while cloched was dead is in the audit all the same."""
    with a_service() as one:
        c = one.key()
        b = c.box(network="allow", allow=[rule(web)])
        b.start(["sh", "-c", f"while sleep 0.2; do curl -sf http://other.test:{web.port}/; done"])
        until(lambda: network(b)["usage"]["denied"] > 0)
        cloched = one.running("cloched")[0]
        os.kill(cloched, signal.SIGKILL)
        one.wait_ready()
        until(lambda: b.request("PUT", "/network", json={"mode": "none"}, check=False).status == 200, what="the service")
        total = network(b)["usage"]["denied"]
        b.kill()
        until(lambda: sum(r["count"] for r in audited(one, b.id) if r["verdict"] == "denied") >= total, 15, "all in the audit")
        forgotten(one, b)


def test_deaths_with_open_tunnels(web):
    """Fifty times: a tunnel is open, somebody is killed. The sandbox says the truth or is gone, and nothing is left."""
    with egress.Server(lambda peer, _: peer.head() and peer.more()) as slow, a_service() as one:
        c = one.key()
        pids = set()
        for turn in range(50):
            who = ("egress", "cloche-spawner", "cloched", "sandbox")[turn % 4]
            b = c.box(network="allow", allow=[rule(web), f"allowed.test:{slow.port} within=127.0.0.0/8"])
            b.start(["curl", "-s", f"http://allowed.test:{slow.port}/"])
            pid = serving(one, b)
            pids.add(pid)
            until(lambda: network(b)["usage"]["open"] >= 1, what="the tunnel")
            if who == "egress":
                os.kill(pid, signal.SIGKILL)
                assert not b.exec(fetch(web)).ok
            elif who != "sandbox":
                p = one.running(who)[0]
                os.kill(p, signal.SIGKILL)
                one.wait_ready()
                until(lambda: b.request("GET", "/network", check=False).status == 200, what="the service")
                r = b.request("POST", "/exec", json={"command": fetch(web)}, check=False)
                until(lambda: r.status == 200 or b.request("GET", "", check=False).status == 200)
                if r.status == 200:
                    assert outcome(r.json).ok, r
            b.kill()
        until(lambda: all(gone(p) for p in pids), 20, "every process that connected to end")
        until(lambda: not os.listdir(one.folder / "run" / "sandboxes"), 20, "every folder to go")


def test_the_next_ones_process_waits_already():
    """Started when the first that has a network was made, not while somebody waits; each is used once, and followed by another."""
    with services.Service() as one:
        assert one.running("cloche-egress") == []
        first = one.root.box(network="allow")
        until(lambda: len(one.running("cloche-egress")) == 3, 10)
        before = set(one.running("cloche-egress"))
        second = one.root.box(network="allow")
        assert serving(one, second) in before - {serving(one, first)}
        until(lambda: len(one.running("cloche-egress")) == 4, 10)
        first.kill()
        second.kill()
