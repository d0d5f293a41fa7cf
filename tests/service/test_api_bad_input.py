# SPDX-License-Identifier: Apache-2.0
"""What a hostile client may send (the security basis, "Daemon API"): the named status and code, flat memory, others served."""
import json
import os
import re
import socket
import struct
import threading
import time

import cloche
import proc
import pytest
import service as services
from contract import at_once, exited, until
from websocket import ECHO_SERVER, WebSocket, read_head

UNKNOWN = "sbx_" + "0" * 32


def exchange(client, data, seconds=10, wait_close=False):
    """Send raw bytes; (status, whole answer). Status None: hung up without a word."""
    with client.socket(seconds) as s:
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = b""
        try:
            while wait_close or b"\r\n\r\n" not in answer:
                piece = s.recv(65536)
                if not piece:
                    break
                answer += piece
        except ConnectionResetError:
            pass
    return (int(answer.split()[1]) if answer.startswith(b"HTTP/1.") else None), answer


def statuses(answers):
    return re.findall(rb"HTTP/1\.[01] (\d{3}) ", answers)


def head(method="GET", path="/v1/sandboxes", *fields, host="localhost"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *fields, "",
                        ""]).encode("latin-1")


@pytest.fixture(scope="module")
def tcp(service):
    return service.key("bad-input")


@pytest.fixture(scope="module")
def auth(tcp):
    return f"Authorization: Bearer {tcp.secret}"


def rss(service):
    """Resident bytes of cloched."""
    return int(proc.of(service.child("cloched"), "statm").split()[1]) * 4096


@pytest.fixture
def flat(service):
    """Whatever the test sends, cloched grows by less than 32 MB and still answers at once."""
    before = rss(service)
    yield
    began = time.monotonic()
    service.root.expect(200, "GET", "/healthz")
    assert time.monotonic() - began < 5
    assert rss(service) - before < 32 << 20


# ------------------------------------------------------------------------------------------ AP-01: who asks


@pytest.mark.parametrize("value", [
    None, "", "Bearer", "Bearer ", "Bearer x", "Bearer clk_", "Bearer clk_" + "A" * 43, "Basic dXNlcjpwYXNz",
    "Bearer clk_" + "A" * 4000, "{secret}", "Bearer {short}", "Bearer {long}", "Bearer {secret} x", "Bearer {upper}"
], ids=str)
def test_AP_01_no_key_and_wrong_keys(service, tcp, value):
    if value:
        value = value.format(secret=tcp.secret, short=tcp.secret[:-1], long=tcp.secret + "A", upper=tcp.secret.swapcase())
    anyone = services.Client(("127.0.0.1", service.port), headers={"Authorization": value})
    for method, path in (("GET", "/v1/sandboxes"), ("POST", "/v1/runs"), ("GET", "/metrics"), ("GET", "/v1/keys"),
                         ("GET", "/v1/sandboxes/" + UNKNOWN)):
        more = {"json": {"command": ["true"]}} if method == "POST" else {}
        anyone.problem(401, "UNAUTHENTICATED", method, path, **more)


def test_AP_01_control(tcp):
    for path in ("/v1/sandboxes", "/v1/quota"):
        tcp.expect(200, "GET", path)
    exited(tcp.run(["true"]))


def test_a_401_names_its_scheme(service):
    r = services.Client(("127.0.0.1", service.port)).request("GET", "/v1/sandboxes")
    assert r.status == 401 and r.headers["WWW-Authenticate"].startswith("Bearer")


def test_AP_01_a_key_in_the_query_is_none(service, tcp):
    anyone = services.Client(("127.0.0.1", service.port))
    for name in ("access_token", "token", "key", "authorization"):
        anyone.problem(401, "UNAUTHENTICATED", "GET", f"/v1/sandboxes?{name}={tcp.secret}")


def test_AP_01_a_revoked_key_is_refused_at_once(service):
    key = service.key("short-lived")
    key.expect(200, "GET", "/v1/quota")
    service.root.expect(204, "DELETE", f"/v1/keys/{key.key_id}")
    key.problem(401, "UNAUTHENTICATED", "GET", "/v1/quota")


def test_keys_are_for_root_on_the_socket(service, tcp):
    for method, path, more in (("GET", "/v1/keys", {}), ("POST", "/v1/keys", {"json": {"name": "x"}}),
                               ("DELETE", f"/v1/keys/{tcp.key_id}", {}), ("GET", "/v1/audit/verify", {})):
        tcp.problem(403, "FORBIDDEN", method, path, **more)
    listed = service.root.expect(200, "GET", "/v1/keys")
    assert tcp.key_id in [k["id"] for k in listed.json["keys"]] and tcp.secret.encode() not in listed.body


def test_AP_01_two_authorizations_are_refused(tcp, auth):
    status, answer = exchange(tcp, head("GET", "/v1/sandboxes", auth, "Authorization: Bearer clk_x"))
    assert status in (400, 401), answer


def test_AP_01_the_socket_is_for_its_group_only(service):
    mode = os.stat(service.sock).st_mode & 0o777
    assert mode in (0o600, 0o660), oct(mode)
    with pytest.raises(AssertionError, match="PermissionError"):  # another user, as the kernel sees it
        services.as_user(65533, 65533, lambda: service.root.request("GET", "/healthz").status)


def test_AP_01_who_may_open_the_socket_is_its_uid():
    with services.Service(service={"socket_group": "nogroup"}) as s:
        assert os.stat(s.sock).st_mode & 0o777 == 0o660 and os.stat(s.sock).st_gid == 65534
        mine = s.root.box(memory="32m")

        def other():
            theirs = s.root.box(memory="32m")
            seen = [b["id"] for b in s.root.get("/v1/sandboxes")["sandboxes"]]
            refused = [s.root.request(method, path, json=body).json["code"] for method, path, body in (
                ("GET", mine.path, None), ("DELETE", mine.path, None), ("POST", mine.path + "/exec", {"command": ["true"]}),
                ("POST", "/v1/keys", {"name": "x"}), ("GET", "/v1/keys", None), ("GET", "/v1/audit/verify", None))]
            return [theirs.made["owner"], seen == [theirs.id], refused, theirs.kill()["state"]]
        assert services.as_user(65533, 65534, other) == ["uid:65533", True, ["NOT_FOUND"] * 3 + ["FORBIDDEN"] * 3, "ended"]


# -------------------------------------------------------------------------------------- AP-02: two tenants


def test_AP_02_a_tenant_sees_nothing_of_another(tenants, service):
    a, b = tenants
    box = a.box(labels={"secret": "a"})
    run, process = exited(box.exec(["true"])), box.start(["sleep", "79"])
    box.put("/workspace/f", b"secret")
    kept = exited(a.run("echo x > /output/f", output=True))
    path = box.path
    for end, query in (("", {}), ("/processes", {}), (process.path, {}), (process.path + "/output", {}), ("/files", {"path": "/workspace/f"}),
                       ("/files/stat", {"path": "/workspace/f"}), ("/files/list", {"path": "/workspace"}), ("/archive", {"path": "/workspace"})):
        a.expect(200, "GET", path + end, query=query)  # control: its owner may
    for method, end, more in (("GET", "", {}), ("DELETE", "", {}), ("POST", "/pause", {}), ("POST", "/resume", {}),
                              ("POST", "/renew", {"json": {"timeout": 1}}), ("POST", "/exec", {"json": {"command": ["true"]}}),
                              ("POST", "/processes", {"json": {"command": ["true"]}}), ("GET", "/processes", {}),
                              ("GET", process.path, {}), ("DELETE", process.path, {}), ("GET", process.path + "/output", {}),
                              ("POST", process.path + "/signal",
                               {"json": {"signal": 9}}), ("POST", process.path + "/stdin", {"body": b"x"}), ("GET", "/files", {
                                   "query": {"path": "/workspace/f"}
                               }), ("PUT", "/files", {"query": {"path": "/workspace/f"},
                                                      "body": b"x"}), ("DELETE", "/files", {"query": {"path": "/workspace/f"}}),
                              ("GET", "/files/stat", {"query": {"path": "/workspace/f"}}), ("GET", "/files/list", {
                                  "query": {"path": "/workspace"}
                              }), ("GET", "/files/watch", {"query": {"path": "/workspace"}}), ("GET", "/archive",
                                                                                               {"query": {"path": "/workspace"}
                                                                                                }), ("GET", "/ports/80/", {})):
        b.problem(404, "NOT_FOUND", method, path + end, **more)
    for r in (run, kept):
        b.problem(404, "NOT_FOUND", "GET", f"/v1/runs/{r.id}")
    b.problem(404, "NOT_FOUND", "GET", kept.artifacts[0]["href"])
    assert b.get("/v1/sandboxes")["sandboxes"] == [] and b.get("/v1/runs")["runs"] == [] and b.get("/v1/runs",
                                                                                                   sandbox=box.id)["runs"] == []
    assert b.get("/v1/sandboxes", label="secret=a")["sandboxes"] == []
    assert {row["actor"] for row in b.get("/v1/audit", limit=1000)["rows"]} <= {f"key:{b.key_id}"}
    assert box.id not in json.dumps(b.get("/v1/audit", limit=1000))
    assert box.object()["state"] == "running" and box.object()["owner"] == f"key:{a.key_id}" and process.object()["running"]
    assert box.id in [s["id"] for s in service.root.get("/v1/sandboxes", limit=1000)["sandboxes"]]  # root sees all


def test_AP_02_a_tenants_events_are_its_own(tenants):
    a, b = tenants
    with b.stream("GET", "/v1/events", query={"since": 0}, timeout=10) as stream:
        box = a.box()
        mine = b.box()
        for event in stream.events():
            assert event.get("sandbox") != box.id
            if event.get("sandbox") == mine.id:
                break
    with b.stream("GET", "/v1/events", query={"sandbox": box.id, "since": 0}, timeout=1) as stream:
        seen = []
        with pytest.raises(TimeoutError):  # nothing but the first heartbeat comes
            for e in stream.events():
                seen += [e] if e else []
        assert seen == []


def test_the_same_idempotency_key_of_two_tenants_is_two(tenants):
    a, b = tenants
    key = {"Idempotency-Key": "same"}
    assert a.box(headers=key, memory="32m").id != b.box(headers=key, memory="32m").id


# --------------------------------------------------------------------------------- AP-03, AP-05: what is too much


def test_AP_03_content_length_beyond_everything(tcp, auth, flat):
    for length in (b"17000000", b"1000000000000000000"):
        status, answer = exchange(
            tcp,
            head("POST", "/v1/runs", auth, "Content-Type: application/json")[:-2] + b"Content-Length: " + length + b"\r\n\r\n{")
        assert status == 413 and b'"TOO_LARGE"' in answer, answer


@pytest.mark.parametrize("length", ["99999999999999999999999", "-1", "+5", "0x10", "1 2", "", "5,5"])
def test_AP_03_content_length_that_is_none(tcp, auth, flat, length):
    status, answer = exchange(
        tcp,
        head("POST", "/v1/runs", auth, "Content-Type: application/json", f"Content-Length: {length}") + b"{}")
    assert status in ((400, 413) if length.startswith("9") else (400, )), answer


def test_AP_03_endless_chunks(tcp, auth, flat):
    with tcp.socket(20) as s:
        s.sendall(head("POST", "/v1/runs", auth, "Content-Type: application/json", "Transfer-Encoding: chunked"))
        chunk, sent = b"100000\r\n" + b" " * (1 << 20) + b"\r\n", 0
        try:
            for _ in range(64):
                s.sendall(chunk)
                sent += 1
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = b""
        try:
            answer = s.recv(65536)
        except ConnectionResetError:
            pass
    assert sent < 64 or answer.startswith(b"HTTP/1.1 413 ")
    assert not answer or answer.startswith(b"HTTP/1.1 413 "), answer


def test_AP_03_a_packed_body_is_not_unpacked(tcp, flat):
    import gzip
    r = tcp.request("POST", "/v1/runs", body=gzip.compress(b" " * (64 << 20)),
                    headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})
    assert (r.status, r.json["code"]) in ((415, "UNSUPPORTED_MEDIA_TYPE"), (400, "INVALID_REQUEST")), r


def test_AP_03_what_is_authorised_is_what_runs(tcp):
    """Nothing behind the limit is cut off silently: a large body is refused, never shortened (CVE-2026-34040)."""
    body = json.dumps({"command": ["echo", "x"], "stdin": "y" * (17 << 20)}).encode()
    tcp.problem(413, "TOO_LARGE", "POST", "/v1/runs", body=body, headers={"Content-Type": "application/json"})
    r = exited(tcp.run(["wc", "-c"], stdin="y" * (3 << 20), timeout=20))
    assert r.out.strip() == b"3145728"


DEEP = [b"[" * 1_000_000, b'{"a":' * 100_000, b"[" * 33 + b"]" * 33, b'{"command":' + b"[" * 40 + b"]" * 40 + b"}"]
BROKEN = [
    b"", b"{", b"null", b"[]", b"5", b'"x"', b"{}x", b"{} {}", b'{"command":["true"],}', b"{'command':1}",
    b'{"command":["true"],"timeout":1e999999}', b'{"command":["true"],"timeout":' + b"9" * 1_000_000 + b"}",
    b'{"command":["true"],"timeout":NaN}', b'{"command":["true"],"timeout":Infinity}', b'{"command":["true"],"timeout":-1}',
    b'{"command":["true"],"timeout":01}', b'{"command":["true"],"timeout":0x10}', b'{"command":["\\ud800"]}',
    b'{"command":["\\udc00\\ud800"]}', b'{"command":["a\\u0000b"]}', b'{"command":["\xff"]}', b'{"command":["\xed\xa0\x80"]}',
    b'\xef\xbb\xbf{"command":["true"]}', '{"command":["true"]}'.encode("utf-16"), b'{"command":["true"],"command":["false"]}',
    b'{"command":["true"],"c\\u006fmmand":["false"]}', b'{"command":["true"],"image":"host","image":"host"}',
    b'{"command":["true"],"env":{"A":"1","A":"2"}}', b'{"command":["true"]}\0', b'{"command":["tr\nue"]}',
    b'{"command":["true"],"__proto__":{}}', b'{"command":["true"],"\\u0000":1}'
]


@pytest.mark.parametrize("body", DEEP + BROKEN, ids=lambda b: repr(b[:40]))
def test_AP_05_json_that_is_none(tcp, flat, body):
    for path in ("/v1/runs", "/v1/sandboxes"):
        if path == "/v1/sandboxes" and body == b"{}":
            continue
        tcp.problem(400, "INVALID_REQUEST", "POST", path, body=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("body", [
    b'{"command":["true"]}', b' {"command":["true"]}\r\n\t', b'{"command":["echo","\\ud83d\\ude00"]}', b'{"command":["true"],"timeout":1e0}',
    b'{"command":["true"],"env":{"A":"1","B":"1"}}', b'{"c\\u006fmmand":["true"]}', '{"command":["echo","\u00fc\U0001f514"]}'.encode()
], ids=repr)
def test_AP_05_control(tcp, body):
    """What differs from the refused by as little as can be, and is right."""
    r = tcp.request("POST", "/v1/runs", body=body, headers={"Content-Type": "application/json"})
    assert (r.status, r.json["ok"]) == (200, True), r


def test_AP_05_a_million_keys(tcp, flat):
    body = ("{" + ",".join(f'"k{i}":0' for i in range(1_000_000)) + "}").encode()
    began = time.monotonic()
    tcp.problem(400, "INVALID_REQUEST", "POST", "/v1/sandboxes", body=body, headers={"Content-Type": "application/json"})
    labels = json.dumps({"labels": {f"k{i}": "" for i in range(200_000)}}).encode()
    tcp.problem(400, "INVALID_REQUEST", "POST", "/v1/sandboxes", body=labels, headers={"Content-Type": "application/json"})
    assert time.monotonic() - began < 10


WRONG = [None, [], {}, [[]], {"a": {}}, True, -1, 1e300, "", "\u0000", "x" * 70000]
FIELDS = {
    "/v1/runs": [
        "language", "stdin", "stdin_base64", "files", "artifact", "memory", "memory_swap", "cpus", "pids_limit", "timeout",
        "cpu_time", "idle_timeout", "max_output", "on_output_limit", "env", "workdir", "tmpfs", "hostname", "profile", "user",
        "image", "runtime", "network", "output"
    ], "/v1/sandboxes": [
        "memory", "memory_swap", "cpus", "pids_limit", "timeout", "idle_timeout", "env", "workdir", "tmpfs", "hostname",
        "profile", "user", "disk", "on_timeout", "resume_on_touch", "labels", "metadata"
    ],
}
# What of WRONG a field may well be.
FINE = {
    "files": [[]], "artifact": [[]], "tmpfs": [[]], "env": [{}], "labels": [{}], "metadata": [{}], "output": [True],
    "resume_on_touch": [True], "stdin": ["", "\u0000", "x" * 70000], "stdin_base64": ["", "x" * 70000]
}
# An image, a runtime that there is not, has a code of its own.
OTHER = {"image": (404, "SANDBOX_IMAGE_MISSING"), "runtime": (501, "SANDBOX_RUNTIME_UNAVAILABLE")}


@pytest.mark.parametrize("path, field", [(p, f) for p, fields in FIELDS.items() for f in fields])
def test_type_confusion(tcp, path, field):
    for value in WRONG:
        if any(value is f or (type(value) is type(f) and value == f) for f in FINE.get(field, [])):
            continue
        body = {**({"command": ["true"]} if path == "/v1/runs" else {}), field: value}
        r = tcp.request("POST", path, json=body)
        allowed = [(400, "INVALID_REQUEST")
                   ] + ([OTHER[field]] if field in OTHER and not isinstance(value, (list, dict, type(None))) else [])
        assert r.status >= 400 and (r.status, r.json["code"]) in allowed, (field, str(value)[:60], r)


# ---------------------------------------------------------------------------------- AP-07: web pages, rebinding


@pytest.mark.parametrize("fields, status", [(["Host: evil.test"], 403), (["Host: 127.0.0.1.evil.test"], 403),
                                            (["Host: localhost.evil.test"], 403), (["Host: "], 403), (["Host: 1"], 403),
                                            (["Host: 127.0.0"], 403), (["Host: localhost", "Origin: http://evil.test"], 403),
                                            (["Host: localhost", "Origin: null"], 403),
                                            (["Host: localhost", "Origin: http://localhost"], 403),
                                            (["Host: localhost", "Sec-Fetch-Site: cross-site"], 403),
                                            (["Host: localhost", "Sec-Fetch-Site: same-site"], 403), (["Host: localhost"], 200),
                                            (["Host: localhost:{port}"], 200), (["Host: 127.0.0.1:{port}"], 200),
                                            (["Host: LOCALHOST"], 200)], ids=str)
def test_AP_07_rebinding_and_foreign_pages(service, tcp, auth, fields, status):
    lines = [f.format(port=service.port) for f in fields]
    got, answer = exchange(tcp, head("GET", "/v1/sandboxes", auth, *lines, host=None))
    if lines == ["Host: "]:
        assert got in (400, 403), answer
        return
    assert got == status, answer
    assert b"access-control-allow-origin" not in answer.lower()
    if status == 403:
        assert b'"FORBIDDEN"' in answer or b"application/problem+json" in answer


def test_AP_07_hosts_hold_for_health_too(service):
    status, answer = exchange(services.Client(("127.0.0.1", service.port)), head("GET", "/healthz", host="evil.test"))
    assert status == 403, answer


def test_AP_07_preflight(tcp):
    status, answer = exchange(tcp, head("OPTIONS", "/v1/runs", "Origin: http://evil.test", "Access-Control-Request-Method: POST"))
    assert status in (403, 405) and b"access-control-allow" not in answer.lower(), answer


@pytest.mark.parametrize("kind", [
    None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", "text/json",
    "application/json+x", "*/*"
], ids=str)
def test_AP_07_a_form_is_not_json(tcp, kind):
    body = b'{"command":["true"]}'
    r = tcp.request("POST", "/v1/runs", body=body, headers={"Content-Type": kind}) if kind else None
    if kind is None:
        status, answer = exchange(
            tcp,
            head("POST", "/v1/runs", f"Authorization: Bearer {tcp.secret}", f"Content-Length: {len(body)}") + body)
        assert status == 415 and b"UNSUPPORTED_MEDIA_TYPE" in answer
        return
    assert (r.status, r.json["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE"), r


def test_json_with_a_charset_is_json(tcp):
    r = tcp.request("POST", "/v1/runs", body=b'{"command":["true"]}', headers={"Content-Type": "Application/JSON; charset=utf-8"})
    assert r.status == 200


# ------------------------------------------------------------------------------------------- AP-10: ids and paths


@pytest.mark.parametrize("part", [
    "..", ".", "%2e%2e", "..%2f..%2fetc", "a%2fb", "x" * 64, "x" * 300, "a%0ab", "a%00b", "%ff", "%", "%zz", "sbx_" + "0" * 31,
    "SBX_" + "0" * 32, "sbx_" + "g" * 32, "*", "a;b", "a:b", "a b".replace(" ", "%20"), "\u00fc".encode().decode("latin-1")
])
def test_ids_that_are_none(tcp, auth, part):
    for path in (f"/v1/sandboxes/{part}", f"/v1/runs/{part}", f"/v1/sandboxes/{part}/exec",
                 f"/v1/sandboxes/{UNKNOWN}/processes/{part}"):
        method = "POST" if path.endswith("exec") else "GET"
        more = ["Content-Type: application/json", "Content-Length: 2"] if method == "POST" else []
        status, answer = exchange(tcp, head(method, path, auth, *more) + (b"{}" if more else b""))
        assert status in (400, 404, 405), (path, answer)
        assert b"application/problem+json" in answer, answer


@pytest.mark.parametrize("path", [
    "/v1/sandboxes/../../healthz", "/v1/./sandboxes", "/v1/%2e%2e/healthz", "/v1//sandboxes", "/%00", "/v1/sandboxes%2f",
    "/\xff".encode("latin-1").decode("latin-1"), "v1/sandboxes", "http://localhost/v1/sandboxes", "*", "//evil.test/v1/sandboxes"
])
def test_targets_that_are_none(tcp, auth, path):
    status, answer = exchange(tcp, head("GET", path, auth))
    assert status in ((400, 404) if path.startswith("//") else (400, )), answer


@pytest.mark.parametrize("method, path", [("GET", "/nosuch"), ("GET", "/v1"), ("GET", "/v1/"), ("GET", "/v2/sandboxes"),
                                          ("GET", "/V1/sandboxes"), ("GET", "/debug"), ("GET", "/v1/sandboxes/"),
                                          ("GET", f"/v1/sandboxes/{UNKNOWN}/nosuch"), ("GET", "/favicon.ico")])
def test_no_such_route(tcp, method, path):
    tcp.problem(404, "NOT_FOUND", method, path)


@pytest.mark.parametrize("method, path", [("PUT", "/v1/runs"), ("PATCH", "/v1/sandboxes"), ("DELETE", "/v1/sandboxes"),
                                          ("POST", "/healthz"), ("TRACE", "/healthz"), ("POST", "/v1/events"),
                                          ("GET", f"/v1/sandboxes/{UNKNOWN}/exec")])
def test_wrong_method(tcp, method, path):
    tcp.problem(405, "METHOD_NOT_ALLOWED", method, path)


def test_long_path_and_large_header(tcp, auth, flat):
    for data, statuses in ((head("GET", "/v1/sandboxes?label=" + "x" * 9000,
                                 auth), (414, )), (head("GET", "/v1/sandboxes", auth, "X-Big: " + "x" * 40000), (431, )),
                           (head("GET", "/v1/sandboxes", auth, *[f"X-{i}: 1" for i in range(70)]), (431, ))):
        status, answer = exchange(tcp, data)
        assert status in statuses, answer[:300]
        assert b"application/problem+json" in answer


# ---------------------------------------------------------------------------------------- AP-12: smuggling


@pytest.mark.parametrize("data", [
    b"GET /healthz HTTP/1.1\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n", b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/0.9\r\n\r\n", b"GET /healthz\r\n\r\n", b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/1.1\nHost: localhost\n\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n", b"G\x00T /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 100,
    b"CONNECT evil.test:80 HTTP/1.1\r\nHost: evil.test\r\n\r\n",
], ids=lambda d: repr(d[:70]))
def test_AP_12_not_http(service, tcp, data):
    for client in (service.root, tcp):
        status, answer = exchange(client, data, wait_close=True)
        assert status in (400, None) or (data.startswith(
            (b"CONNECT", b"GET /healthz HTTP/0.9", b"PRI")) and status in (403, 404, 405, 505)), answer
        assert len(statuses(answer)) <= 1  # and what followed was not a second request


def test_AP_12_chunk_sizes_that_are_none(tcp, auth):
    for chunk in (b"-1\r\n", b"0x5\r\nhello\r\n", b"5 \r\nhello\r\n", b"ffffffffffffffffff\r\n", b"5\nhello\n", b"zz\r\n",
                  b"\r\n"):
        status, answer = exchange(
            tcp,
            head("POST", "/v1/runs", auth, "Content-Type: application/json", "Transfer-Encoding: chunked") + chunk + b"0\r\n\r\n")
        assert status in (400, 413), (chunk, answer)


def test_pipelined_requests_are_answered_in_order(tcp, auth):
    data = head("GET", "/healthz") + head("GET", "/nosuch", auth) + head("GET", "/v1/sandboxes", auth, "Connection: close")
    _, answer = exchange(tcp, data, wait_close=True)
    assert statuses(answer) == [b"200", b"404", b"200"]


# -------------------------------------------------------------------------------------- AP-04: slow clients


def test_AP_04_slow_clients_hold_up_nobody_and_are_hung_up_on(service, tcp, auth):
    """A header and a body that never end, a client that never reads, idle ones: each has its deadline (10, 20 s and so on)."""
    slow = [tcp.socket(30) for _ in range(150)]
    try:
        for i, s in enumerate(slow):
            s.sendall(
                (b"GET /healthz HTTP/1.1\r\nHost: loc",
                 head("POST", "/v1/runs", auth, "Content-Type: application/json", "Content-Length: 1000") + b"{", b"")[i % 3])
        for _ in range(5):
            began = time.monotonic()
            service.root.expect(200, "GET", "/healthz")
            tcp.expect(200, "GET", "/v1/sandboxes")
            assert time.monotonic() - began < 3
        slow[0].settimeout(15)
        began = time.monotonic()
        answer = slow[0].recv(4096)  # the unfinished header
        assert 5 < time.monotonic() - began < 14
        assert not answer or answer.startswith(b"HTTP/1.1 408 "), answer
    finally:
        for s in slow:
            s.close()


# ------------------------------------------------------------------ AP-13, AP-14: mounts, options that weaken


@pytest.mark.parametrize(
    "path, body",
    [(p, b) for p in ("/v1/runs", "/v1/sandboxes")
     for b in ({"privileged": True}, {"privileged": False}, {"cap_add": ["SYS_ADMIN"]}, {"cap_drop": ["ALL"]},
               {"security_opt": ["seccomp=unconfined"]}, {"seccomp": "unconfined"}, {"network": "host"}, {"network": "bridge"},
               {"user": "0"}, {"user": "0:0"}, {"user": "1000:0"}, {"user": "root"}, {"user": -1}, {"user": "4294967295"},
               {"pid": "host"}, {"best_effort": True}, {"runtime_args": []}, {"rm": True}, {"read_only": False},
               {"devices": ["/dev/kvm"]}, {"profile": "unconfined"}, {"profile": "../default"}, {"workdir": "/proc/self/fd/7"},
               {"workdir": "/sys"}, {"workdir": "relative"}, {"workdir": "/a/../../b"}, {"hostname": "a b"}, {"hostname": "a\nb"},
               {"hostname": ""}, {"tmpfs": ["/usr:size=1m"]}, {"tmpfs": ["/etc"]}, {"tmpfs": ["/"]}, {"tmpfs": ["/proc"]},
               {"tmpfs": ["/data:mode=4777"]}, {"tmpfs": ["/data:size=1m,suid"]}, {"tmpfs": ["/data:uid=0"]},
               {"tmpfs": ["relative"]}, {"tmpfs": ["/a/../usr"]}, {"tmpfs": [f"/t{i}"
                                                                             for i in range(40)]}, {"env": {"A\u0000": "x"}},
               {"MEMORY": "1g"}, {"memory-swap": "1g"}, {"": 1}, {"owner": "uid:0"}, {"id": UNKNOWN}, {"volume_fds": ["/data"]})],
    ids=str)
def test_options_that_weaken_or_are_none(tcp, path, body):
    tcp.problem(400, "INVALID_REQUEST", "POST", path, json={**({"command": ["true"]} if path == "/v1/runs" else {}), **body})


@pytest.mark.parametrize("volume", [
    "/:/data", "/proc:/data", "/etc:/data:ro", "/var/run/docker.sock:/data", "{root}/../state:/data", "{root}/link:/data",
    "{root}/nosuch:/data", "relative:/data", "{root}:/usr", "{root}:/data:rw,exec", "{root}", ":", "{root}:/data:ro:x",
    "{root}x:/data", "{root}/a,upperdir=/:/data"
])
def test_volumes_below_the_operators_root_only(service, tcp, volume):
    root = service.folder / "volumes"
    if not (root / "link").is_symlink():
        (root / "link").symlink_to("/etc")
    for path in ("/v1/runs", "/v1/sandboxes"):
        r = tcp.request("POST", path,
                        json={**({"command": ["true"]} if path == "/v1/runs" else {}), "volume": [volume.format(root=root)]})
        if path == "/v1/runs" and r.status == 200:  # a sandbox that could not be made is a run's end too
            assert r.json["reason"] == "create_failed" and r.json["stage"] != "exec", r
            continue
        assert (r.status, r.json["code"]) in ((400, "INVALID_REQUEST"), (403, "FORBIDDEN"), (404, "NOT_FOUND")), r


def test_a_volume_below_the_root_works(service, tcp):
    folder = service.folder / "volumes" / "data"
    folder.mkdir(exist_ok=True)
    (folder / "f").write_text("from the operator\n")
    r = exited(tcp.run("cat /data/f; touch /data/x 2>/dev/null || echo ro", volume=[f"{folder}:/data:ro"]))
    assert r.out == b"from the operator\nro\n" and not (folder / "x").exists()


def test_policy_binds_every_caller(client):
    with services.Service(policy={"memory": "128m", "timeout": "20s", "pids_limit": 50}) as s:
        for client_ in (s.root, s.key()):
            for body in ({"memory": "129m"}, {"pids_limit": 51}):
                client_.problem(403, "FORBIDDEN", "POST", "/v1/sandboxes", json=body)
            client_.problem(403, "FORBIDDEN", "POST", "/v1/runs", json={"command": ["true"], "timeout": 21})
            box = client_.box()
            assert box.object()["limits"]["memory"] == 128 << 20 and box.object()["limits"]["pids"] == 50
            box.kill()


# ------------------------------------------------------------------------------ AP-08: the API from inside


def test_AP_08_the_service_cannot_be_reached_from_inside(service, tcp):
    code = (
        f"import socket, os\nfor port in ({service.port},):\n try: socket.create_connection(('127.0.0.1', port), 2); print('reached')\n except OSError as e: print(type(e).__name__)\n"
        f"for p in ({service.sock!r}, '/run/cloche/cloche.sock'): print(os.path.exists(p))")
    assert exited(tcp.run(language="python", code=code)).out == b"ConnectionRefusedError\nFalse\nFalse\n"


# --------------------------------------------------------------------------------- AP-09: WebSocket to a port


@pytest.fixture(scope="module")
def echo(service, tcp):
    box = tcp.box(memory="256m", cpus=1)
    p = box.start(language="python", code=ECHO_SERVER, args=["8001"])
    until(lambda: b"up" in services.joined(p.output(), "stdout"), what="the server")
    yield box
    box.kill()


def test_AP_09_websocket_rules_of_the_door(service, tcp, auth, echo):
    path = f"{echo.path}/ports/8001/"
    for fields, status in (([], 401), ([auth, "Origin: http://evil.test"], 403), ([auth, "Host: evil.test"], 403),
                           ([auth, "Sec-Fetch-Site: cross-site"], 403), ([auth], 101)):
        with tcp.socket() as s:
            assert WebSocket(s, path, fields).status == status, fields


def test_AP_09_websocket_bytes_are_the_servers_business_and_flat(tcp, auth, echo, flat):
    """The tunnel does not look inside frames; what breaks the rules reaches the server inside and nothing else."""
    with tcp.socket() as s:
        w = WebSocket(s, f"{echo.path}/ports/8001/", [auth])
        for _ in range(2000):
            w.send(b"x", kind=0 if _ else 2, final=False)
        assert w.receive()[2] == b"x"
    with tcp.socket() as s:
        w = WebSocket(s, f"{echo.path}/ports/8001/", [auth])
        w.send(b"", length=1 << 62)
        try:
            for _ in range(64):
                s.sendall(b"x" * (1 << 20))
        except OSError:
            pass
    with tcp.socket() as s:
        WebSocket(s, f"{echo.path}/ports/8001/", [auth])
        s.sendall(os.urandom(100000))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # gone with a reset
    exited(echo.exec(["true"]))


FRAMES = {
    "not masked": b"\x82\x05hello", "2^63 bytes": b"\x82\xff" + b"\x80" + bytes(7) + bytes(4), "ping of 126": b"\x89\xfe\x00\x7e" + bytes(130),
    "fragmented ping": b"\x09\x80" + bytes(4), "close without a status": b"\x88\x81" + bytes(5), "text that is no UTF-8": b"\x81\x82" + bytes(4) + b"\xc3\x28",
    "reserved kind": b"\x83\x80" + bytes(4), "deflated, and nobody asked": b"\xc2\x84" + bytes(4) + b"\xff" * 4,
    "many pings": (b"\x89\x80" + bytes(4)) * 20000,
}


@pytest.mark.parametrize("name", FRAMES)
def test_AP_09_frames_that_break_the_rules(tcp, auth, echo, flat, name):
    """Each reaches its own server and nothing else: cloche reads no frame. Control: a good one comes back, before and behind it."""
    with tcp.socket() as s:
        w = WebSocket(s, f"{echo.path}/ports/8001/", [auth])
        w.send(b"good")
        assert w.receive()[2] == b"good"
        s.settimeout(5)
        try:
            for i in range(0, len(FRAMES[name]), 1000):
                s.sendall(FRAMES[name][i:i + 1000])
                if name == "many pings":
                    s.recv(65536)
        except OSError:
            pass
    with tcp.socket() as s:
        w = WebSocket(s, f"{echo.path}/ports/8001/", [auth])
        w.send(b"still here")
        assert w.receive()[2] == b"still here"


def test_an_upgrade_where_there_is_nothing_to_upgrade(tcp, auth):
    for path in ("/v1/sandboxes", "/healthz"):
        with tcp.socket() as s:
            s.sendall(
                head("GET", path, auth, "Upgrade: websocket", "Connection: Upgrade",
                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"))
            assert read_head(s).startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))


# ---------------------------------------------------------------------------- AP-15, AP-17: quotas, what is told


def test_AP_15_quota_of_a_key(service):
    small = service.key("small", {"sandboxes": 2})
    boxes = [small.box(memory="32m") for _ in range(2)]
    try:
        r = small.request("POST", "/v1/sandboxes", json={})
        assert (r.status, r.json["code"], r.json["retryable"]) == (429, "SANDBOX_QUOTA_EXCEEDED", True) and int(
            r.headers["Retry-After"]) >= 1
        service.key("other").box(memory="32m").kill()  # another key has its own
        boxes.pop().kill()
        boxes.append(small.box(memory="32m"))
    finally:
        for box in boxes:
            box.kill()


def test_AP_15_rate_of_a_key(service):
    slow = service.key("slow", {"runs_per_minute": 3})
    statuses = [slow.request("POST", "/v1/runs", json={"command": ["true"]}).status for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    r = slow.request("POST", "/v1/runs", json={"command": ["true"]})
    assert r.json["code"] == "SANDBOX_QUOTA_EXCEEDED" and 1 <= int(r.headers["Retry-After"]) <= 60


def test_AP_15_two_hundred_creates_at_once_are_answered(service):
    many = service.key("many", {"sandboxes": 20})
    answers = at_once(lambda _: many.request("POST", "/v1/sandboxes", json={"memory": "32m"}), range(200), workers=50)
    assert {a.status for a in answers} == {201, 429} and sum(a.status == 201 for a in answers) == 20
    for row in many.get("/v1/sandboxes", limit=1000)["sandboxes"]:
        many.expect(200, "DELETE", f"/v1/sandboxes/{row['id']}")


def test_AP_17_health_and_metrics_name_nobody(service, tenants):
    a, _ = tenants
    box = a.box(labels={"secretlabel": "x"}, env={"SECRETENV": "y"})
    exited(box.exec(["true"]))
    assert box.id in service.root.expect(200, "GET", "/v1/sandboxes").body.decode()  # control: where it may be named it is
    anyone = services.Client(("127.0.0.1", service.port))
    assert anyone.expect(200, "GET", "/healthz").json == {"ok": True}
    anyone.problem(401, "UNAUTHENTICATED", "GET", "/metrics")
    for path in ("/debug", "/debug/pprof/", "/debug/vars", "/status"):
        anyone.problem(404, "NOT_FOUND", "GET", path)
    text = service.root.expect(200, "GET", "/metrics").body.decode()
    for secret in (box.id, "sbx_", "clk_", "key_", a.key_id, "secretlabel", "SECRETENV", str(service.folder)):
        assert secret not in text
    assert text.endswith("# EOF\n") and "cloche_" in text


def test_a_problem_names_no_place_of_the_host(service, tcp):
    for method, path, more in (("POST", "/v1/runs", {"json": {"command": ["true"], "volume": ["/root/x:/data"]}}),
                               ("GET", f"/v1/sandboxes/{UNKNOWN}", {}), ("POST", "/v1/sandboxes", {"body": b"{"})):
        text = json.dumps(
            tcp.request(method, path, headers={"Content-Type": "application/json"} if "body" in more else None, **more).json)
        assert str(service.folder) not in text and cloche.binary() not in text


def test_audit_has_hashes_and_no_secrets(service):
    caller = service.key("audited", headers={"X-Cloche-Session": "s.1:x"})
    exited(caller.run(language="python", code="SECRETCODE = 1", env={"TOKEN": "SECRETVALUE"}))
    rows = caller.get("/v1/audit", limit=1000)["rows"]
    text = json.dumps(rows)
    assert rows and {r["session"] for r in rows} == {"s.1:x"}
    assert "SECRET" not in text and caller.secret not in text
    assert any(r["action"] == "run.end" for r in rows)
    assert [r["seq"] for r in rows] == sorted(r["seq"] for r in rows)
    check = service.root.get("/v1/audit/verify")
    assert check["ok"] and check["first_bad"] is None and check["rows"] >= len(rows)


@pytest.mark.parametrize("session", ["", "a b", "a/b", "x" * 129, "\u00fc".encode().decode("latin-1"), "a,b"])
def test_bad_session(tcp, auth, session):
    status, answer = exchange(tcp, head("GET", "/v1/sandboxes", auth, f"X-Cloche-Session: {session}"))
    assert status == 400 and b'"INVALID_REQUEST"' in answer, answer


def test_nothing_of_this_harmed_the_service(service, tcp):
    """Last in the file: still there, and quick."""
    threads = [threading.Thread(target=lambda: exited(tcp.run(["true"], timeout=20))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
