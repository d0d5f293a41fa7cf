# SPDX-License-Identifier: Apache-2.0
"""Ports of sandboxes: listed, by a host name of their own, shared by a secret, and forwarded as raw TCP."""
import contextlib
import hashlib
import http.client
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import cloche
import pytest
import service as services
from contract import until
from websocket import ECHO_SERVER, WebSocket

# Says back each request's head, sets cookies, and counts; one thread a connection.
WEB = r'''
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        n = int(self.headers.get("Content-Length") or 0)
        body = (self.requestline + "\n" + str(self.headers)).encode() + self.rfile.read(n)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        for c in ("own=1; Path=/", "wide=1; Domain=localhost", "cloche_port=stolen", "Cloche_Port=stolen"): self.send_header("Set-Cookie", c)
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_PUT = do_GET
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H)
print("up", flush=True)
s.serve_forever()
'''

# What comes is said back; the end of one direction is passed on, behind what was said before.
ECHO = r'''
import socket, sys, threading
def serve(s):
    n = 0
    while data := s.recv(65536):
        n += len(data); s.sendall(data)
    s.sendall(b"end %d" % n); s.shutdown(socket.SHUT_WR); s.close()
l = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
print("up", flush=True)
while True: threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
'''


def serve(box, code, port):
    p = box.start(language="python", code=code, args=[str(port)])
    until(lambda: b"up" in services.joined(p.output(), "stdout"), what="the server inside")
    return p


@pytest.fixture(scope="module")
def tcp(service):
    return service.key("ports")


@pytest.fixture(scope="module")
def web(service, tcp):
    box = tcp.box(memory="256m", cpus=1, pids_limit=256)
    serve(box, WEB, 8000)
    serve(box, ECHO_SERVER, 8001)
    serve(box, ECHO, 8002)
    yield box
    box.kill()


def name(box, port, domain="localhost"):
    return f"{port}-{box.id}.{domain}"


def ask(service, method, path, host, fields=(), body=None, address=None):
    """One request with exactly these fields: (status, fields, body)."""
    c = http.client.HTTPConnection(*(address or ("127.0.0.1", service.port)), timeout=20)
    try:
        c.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        c.putheader("Host", host)
        for f in fields:
            c.putheader(*f.split(": ", 1))
        if body is not None:
            c.putheader("Content-Length", str(len(body)))
        c.endheaders(body)
        r = c.getresponse()
        return r.status, r.headers, r.read()
    finally:
        c.close()


def share(box, port, **body):
    return box.expect(201, "POST", f"/ports/{port}/share", json=body).json


def audit_of(service, action):
    return [r for r in service.root.get("/v1/audit", limit=1000)["rows"] if r["action"] == action]


# ------------------------------------------------------------------------------------------------------ listing


def test_ports_are_listed_with_who_listens(web):
    ports = {p["port"]: p for p in web.expect(200, "GET", "/ports").json["ports"]}
    assert set(ports) == {8000, 8001, 8002}, ports
    for number in ports:
        p = ports[number]
        assert p["address"] == "127.0.0.1" and p["reachable"] is True and p["process"].startswith("prc_")
        started = next(x for x in web.processes() if x["id"] == p["process"])
        assert p["pid"] == started["pid"] and str(number) in p["command"]


@pytest.mark.parametrize("address,reachable", [("0.0.0.0", True), ("127.0.0.2", False), ("::", True), ("::1", True)])
def test_listed_addresses(boxes, address, reachable):
    box = boxes()
    code = f"""import socket
s = socket.socket(socket.{'AF_INET6' if ':' in address else 'AF_INET'}); s.bind(({address!r}, 9000)); s.listen()
t = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(t.getsockname()); print('up', flush=True); __import__('time').sleep(100)"""
    p = box.start(language="python", code=code)
    until(lambda: b"up" in services.joined(p.output(), "stdout"), what="the server inside")
    rows = [r for r in box.expect(200, "GET", "/ports").json["ports"] if r["port"] == 9000]
    assert [(r["address"], r["reachable"]) for r in rows] == [(address, reachable)]
    status = box.request("GET", "/ports/9000/", check=False, timeout=3) if not reachable else None
    assert status is None or status.status == 502


def test_nothing_listens(box):
    assert box.expect(200, "GET", "/ports").json == {"ports": [], "shares": []}


# ---------------------------------------------------------------------------------------------------- host names


def test_by_host_name(service, tcp, web):
    auth = f"Authorization: Bearer {tcp.secret}"
    for host in (name(web, 8000), name(web, 8000).upper(), name(web, 8000) + f":{service.port}",
                 name(web, 8000).replace("sbx_", "sbx-")):
        status, fields, body = ask(service, "GET", "/v1/sandboxes?x=%20y&z", host, [auth, "X-Own: 1", "Cookie: own=1; cloche_port=x; b=2"])
        text = body.decode()
        assert status == 200 and text.startswith("GET /v1/sandboxes?x=%20y&z HTTP/1.1\n"), text
        assert f"Host: {host}\n" in text and "x-own: 1\n" in text and "Cookie: own=1; b=2\n" in text
        assert tcp.secret not in text and "cloche_port" not in text
        assert fields.get_all("Set-Cookie") == ["own=1; Path=/"]


def test_by_path_there_are_no_cookies(service, tcp, web):
    status, fields, body = ask(service, "GET", f"{web.path}/ports/8000/a", "localhost",
                               [f"Authorization: Bearer {tcp.secret}", "Cookie: own=1"])
    assert status == 200 and not fields.get_all("Set-Cookie") and b"Cookie" not in body and b"Host: localhost:8000\n" in body


def test_the_unix_socket_looks_at_host_too(service, web):
    with service.root.socket() as s:
        s.sendall(f"GET /healthz HTTP/1.1\r\nHost: {name(web, 8000)}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    assert b"\r\n\r\nGET /healthz HTTP/1.1\n" in answer, answer


@pytest.mark.parametrize("host", [
    "8000-{id}.localhost.evil.test", "8000-{id}.evil.test", "8000-{id}localhost", "08000-{id}.localhost", "0-{id}.localhost",
    "65536-{id}.localhost", "8000-{id}.localhost:80x", "8000-{short}.localhost", "x8000-{id}.localhost", "8000-{id}.localhost.",
    "8000-{id}g.localhost", "-{id}.localhost"
])
def test_other_names_are_no_names(service, tcp, web, host):
    host = host.format(id=web.id, short=web.id[:-1])
    status, _, body = ask(service, "GET", "/healthz", host, [f"Authorization: Bearer {tcp.secret}"])
    assert status == 403 and b"this Host is not served" in body, (status, body)


def test_behind_a_port_s_name_there_is_no_api(service, tcp, web):
    """Whatever the path: even the routes that need no key answer what the server inside does."""
    for path in ("/healthz", "/openapi.json", "/v1/keys", f"{web.path}/exec", "/mcp"):
        assert ask(service, "GET", path, name(web, 8000))[0] == 401
        status, _, body = ask(service, "GET", path, name(web, 8000), [f"Authorization: Bearer {tcp.secret}"])
        assert status == 200 and body.startswith(f"GET {path} HTTP".encode())


def test_owners_are_apart_by_host_name(service, tenants, web):
    for key in tenants:
        assert ask(service, "GET", "/", name(web, 8000), [f"Authorization: Bearer {key.secret}"])[0] == 404
        assert key.request("GET", f"{web.path}/ports").status == 404
        assert key.request("POST", f"{web.path}/ports/8000/share", json={}).status == 404
        assert key.request("DELETE", f"{web.path}/ports/8000/share").status == 404
    assert ask(service, "GET", "/", name(web, 8000))[0] == 401


def test_pages_from_elsewhere(service, tcp, web):
    auth, host = f"Authorization: Bearer {tcp.secret}", name(web, 8000) + f":{service.port}"
    navigation = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"]
    cases = [("GET", ["Origin: http://evil.test"], 403), ("GET", ["Origin: null"], 403), ("GET", [f"Origin: http://{host}"], 200),
             ("POST", [f"Origin: http://{host}", "Sec-Fetch-Site: same-origin"], 200), ("GET", ["Sec-Fetch-Site: cross-site"], 403),
             ("GET", ["Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"], 403), ("GET", navigation, 200), ("POST", navigation, 403),
             ("GET", [f"Origin: http://{name(web, 8001)}:{service.port}"], 403), ("GET", ["Sec-Fetch-Site: none"], 200)]
    for method, fields, status in cases:
        assert ask(service, method, "/", host, [auth, *fields], body=b"" if method == "POST" else None)[0] == status, fields
    # and the other way round: a page of the sandbox's is foreign to the API
    assert ask(service, "GET", "/v1/sandboxes", f"localhost:{service.port}", [auth, f"Origin: http://{host}"])[0] == 403


def test_websocket_by_host_name(service, tcp, web):
    for how in ([f"Authorization: Bearer {tcp.secret}"], ["X-Cloche-Port-Token: " + share(web, 8001)["token"]],
                ["Cookie: cloche_port=" + share(web, 8001)["token"]]):
        with tcp.socket() as s:
            w = WebSocket(s, "/", [f"Host: {name(web, 8001)}", f"Origin: http://{name(web, 8001)}", *how])
            assert w.status == 101
            w.send(b"hello")
            assert w.receive()[2] == b"hello"
    with tcp.socket() as s:
        assert WebSocket(s, "/", [f"Host: {name(web, 8001)}", "Origin: http://evil.test", "Cookie: cloche_port=" +
                                  share(web, 8001)["token"]]).status == 403
    web.expect(204, "DELETE", "/ports/8001/share")


def test_a_domain_of_ones_own():
    with services.Service(service={"ports_domain": "preview.example.org"}) as one:
        tcp = one.key()
        box = tcp.box()
        serve(box, WEB, 8000)
        made = share(box, 8000)
        assert made["url"].startswith(f"http://8000-{box.id.replace('_', '-')}.preview.example.org:{one.port}/?cloche_token=cpt_")
        assert ask(one, "GET", "/", name(box, 8000, "preview.example.org"), [f"X-Cloche-Port-Token: {made['token']}"])[0] == 200
        assert ask(one, "GET", "/healthz", name(box, 8000), [f"X-Cloche-Port-Token: {made['token']}"])[0] == 403


# -------------------------------------------------------------------------------------------------------- shares


def test_a_share_is_a_cookie_after_one_redirect(service, web):
    made = share(web, 8000, expires_in="10m")
    assert set(made) == {"port", "url", "token", "expires_at"} and re.fullmatch(r"cpt_[A-Za-z0-9_-]{43}", made["token"])
    host, token = re.fullmatch(r"http://([^/]*)/\?cloche_token=(.*)", made["url"]).groups()
    assert token == made["token"] and host == f"{name(web, 8000).replace('_', '-')}:{service.port}"
    status, fields, _ = ask(service, "GET", f"/a%20b/?x=1&cloche_token={token}&y=2", host, ["Sec-Fetch-Site: cross-site",
                                                                                           "Sec-Fetch-Mode: navigate"])
    assert (status, fields["Location"]) == (303, "/a%20b/?x=1&y=2")
    cookie = fields["Set-Cookie"].split("; ")
    assert cookie[0] == f"cloche_port={token}" and {"Path=/", "HttpOnly", "SameSite=Lax"} < set(cookie)
    assert "Secure" not in cookie and not [c for c in cookie if c.startswith("Domain")]
    age = next(int(c[8:]) for c in cookie if c.startswith("Max-Age="))
    assert 590 <= age <= 600 and fields["Cache-Control"] == "no-store" and fields["Referrer-Policy"] == "no-referrer"
    status, _, body = ask(service, "GET", "/a", host, [f"Cookie: own=1; {cookie[0]}"])
    assert status == 200 and token.encode() not in body and b"Cookie: own=1\n" in body
    assert ask(service, "GET", "/", host, [f"X-Cloche-Port-Token: {token}"])[0] == 200
    assert token.encode() not in ask(service, "GET", "/", host, [f"X-Cloche-Port-Token: {token}"])[2]
    assert ask(service, "POST", f"/?cloche_token={token}", host, body=b"")[0] == 400
    web.expect(204, "DELETE", "/ports/8000/share")


@pytest.mark.parametrize("way", ["field", "key", "cookie", "path", "unix"])
def test_a_share_s_secret_in_the_query_never_reaches_the_server(service, tcp, web, way):
    """However else who asks comes in."""
    token = share(web, 8000)["token"]
    key, host, path = f"Authorization: Bearer {tcp.secret}", name(web, 8000), "/a"
    fields = {"field": [f"X-Cloche-Port-Token: {token}"], "key": [key], "cookie": [f"Cookie: cloche_port={token}"], "path": [key], "unix": []}[way]
    if way == "path":
        host, path = "localhost", f"{web.path}/ports/8000/a"
    query = f"?x=1&cloche_token={token}&&y=2"
    if way == "unix":
        with service.root.socket() as s:
            s.sendall(f"GET {path}{query} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            status, body = 200, b"".join(iter(lambda: s.recv(65536), b""))
    else:
        status, headers, body = ask(service, "GET", path + query, host, fields)
        assert status == (303 if way in ("key", "cookie") else 200)  # in the query alone, or with what is no token: it becomes a cookie
    assert token.encode() not in body
    if status == 200:
        assert b"GET /a?x=1&y=2 HTTP/1.1\n" in body, body
    web.expect(204, "DELETE", "/ports/8000/share")


def test_cookies_that_others_set_lock_nobody_out(service, web):
    """A page of another sandbox sets one for the whole domain, with a longer path: the browser sends it first."""
    token = share(web, 8000)["token"]
    tossed = ["x", "", "cpt_" + 43 * "A", 300 * "y"]
    for others in ([t] for t in tossed):
        status, _, body = ask(service, "GET", "/", name(web, 8000), ["Cookie: " + "; ".join(f"cloche_port={t}" for t in [*others, token, *others])])
        assert status == 200 and b"cloche_port" not in body, others
    assert ask(service, "GET", "/", name(web, 8000), ["Cookie: " + "; ".join(f"cloche_port={t}" for t in [*tossed, token])])[0] == 200
    assert ask(service, "GET", "/", name(web, 8000), ["Cookie: " + "; ".join(f"cloche_port={t}" for t in tossed)])[0] == 401
    web.expect(204, "DELETE", "/ports/8000/share")


def test_a_redirect_leads_nowhere_else(service, web):
    token = share(web, 8000)["token"]
    for path in ("//evil.test/", "/\\evil.test/", "/%2f/evil.test/", "/a\r\nX: y"):
        with socket.create_connection(("127.0.0.1", service.port), 10) as s:
            s.sendall(f"GET {path}?cloche_token={token} HTTP/1.1\r\nHost: {name(web, 8000)}\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
        location = re.search(r"(?im)^location: (.*)\r$", answer)
        assert answer.startswith("HTTP/1.1 400 ") or not location or not re.match(r"//|/\\|http", location[1]), answer
    web.expect(204, "DELETE", "/ports/8000/share")


def test_a_share_is_for_one_port_and_nothing_else(service, tcp, web):
    token = share(web, 8000)["token"]
    other = tcp.box()
    try:
        serve(other, WEB, 8000)
        how = [[f"X-Cloche-Port-Token: {token}"], [f"Cookie: cloche_port={token}"], [f"Authorization: Bearer {token}"]]
        for fields in how:
            for host in (name(web, 8001), name(web, 8002), name(other, 8000)):
                assert ask(service, "GET", "/", host, fields)[0] == 401, (host, fields)
            for path in ("/v1/sandboxes", web.path, f"{web.path}/ports", f"{web.path}/ports/8000/", "/v1/runs", "/metrics"):
                assert ask(service, "GET", path, "localhost", fields)[0] == 401, (path, fields)
            assert ask(service, "DELETE", web.path, "localhost", fields)[0] == 401
        assert ask(service, "GET", "/", name(web, 8000), how[2])[0] == 401  # it is no API key
        assert ask(service, "GET", f"/?cloche_token={token}", name(web, 8001))[0] == 401
        for wrong in (token[:-1], token + "x", token.replace("cpt_", "clk_"), "", "cpt_" + 43 * "A"):
            assert ask(service, "GET", "/", name(web, 8000), [f"X-Cloche-Port-Token: {wrong}"])[0] == 401, wrong
            assert ask(service, "GET", "/", name(web, 8000), [f"Cookie: cloche_port={wrong}"])[0] == 401, wrong
    finally:
        other.kill()
        web.expect(204, "DELETE", "/ports/8000/share")


def test_a_share_ends_by_the_clock_and_its_connections_with_it(service, tcp, web):
    token = share(web, 8001, expires_in=2)["token"]
    with tcp.socket() as s:
        w = WebSocket(s, "/", [f"Host: {name(web, 8001)}", f"X-Cloche-Port-Token: {token}"])
        begun = time.monotonic()
        with pytest.raises((EOFError, ConnectionResetError)):
            w.receive()
        assert 0.5 < time.monotonic() - begun < 6
    assert ask(service, "GET", "/", name(web, 8001), [f"X-Cloche-Port-Token: {token}"])[0] == 401
    assert web.expect(200, "GET", "/ports").json["shares"] == []


def test_a_share_is_revoked_and_its_connections_end(service, tcp, web):
    one, two, other = share(web, 8001)["token"], share(web, 8001)["token"], share(web, 8000)["token"]
    assert [s["port"] for s in web.expect(200, "GET", "/ports").json["shares"]] == [8000, 8001, 8001]
    with tcp.socket() as a, tcp.socket() as b:
        shared = WebSocket(a, "/", [f"Host: {name(web, 8001)}", f"X-Cloche-Port-Token: {one}"])
        own = WebSocket(b, "/", [f"Host: {name(web, 8001)}", f"Authorization: Bearer {tcp.secret}"])
        web.expect(204, "DELETE", "/ports/8001/share")
        with pytest.raises((EOFError, ConnectionResetError)):
            shared.receive()
        own.send(b"still here")
        assert own.receive()[2] == b"still here"
    for token in (one, two):
        assert ask(service, "GET", "/", name(web, 8001), [f"X-Cloche-Port-Token: {token}"])[0] == 401
    assert ask(service, "GET", "/", name(web, 8000), [f"X-Cloche-Port-Token: {other}"])[0] == 200
    web.problem(404, "NOT_FOUND", "DELETE", "/ports/8001/share")
    web.expect(204, "DELETE", "/ports/8000/share")


def test_shares_outlive_the_service_and_not_the_sandbox():
    with services.Service() as one:
        tcp = one.key()
        box = tcp.box()
        serve(box, WEB, 8000)
        token = share(box, 8000)["token"]
        database = b"".join(f.read_bytes() for f in (one.folder / "state").glob("state.db*"))
        assert token.encode() not in database and token[4:].encode() not in database
        assert hashlib.sha256(token.encode()).digest() in database
        assert token not in one.said()
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(15)
        one.start()
        assert ask(one, "GET", "/", name(box, 8000), [f"X-Cloche-Port-Token: {token}"])[0] == 200
        box.kill()
        assert ask(one, "GET", "/", name(box, 8000), [f"X-Cloche-Port-Token: {token}"])[0] == 401
        rows = one.root.get("/v1/audit", limit=1000)["rows"]
        noted = [r for r in rows if r["action"] == "port.share"]
        assert [(r["object"], r["details"]["port"]) for r in noted] == [(box.id, 8000)] and token not in str(rows)


@pytest.mark.parametrize("body,detail", [({"expires_in": 0}, "expires_in"), ({"expires_in": "8d"}, "expires_in"),
                                         ({"expires_in": "x"}, "expires_in"), ({"expires_in": -1}, "expires_in"),
                                         ({"expires_in": []}, "expires_in"), ({"life": 1}, "life"), ([], "object")])
def test_bad_shares(web, body, detail):
    assert detail in web.problem(400, "INVALID_REQUEST", "POST", "/ports/8000/share", json=body)["detail"]


def test_bad_ports(web):
    for port in ("0", "65536", "x", "08", "-1"):
        web.problem(400, "INVALID_REQUEST", "POST", f"/ports/{port}/share", json={})
        web.problem(400, "INVALID_REQUEST", "DELETE", f"/ports/{port}/share")


def test_shares_are_bounded(tcp):
    box = tcp.box()
    try:
        for _ in range(64):
            share(box, 8000)
        assert "64" in box.problem(409, "CONFLICT", "POST", "/ports/8000/share", json={})["detail"]
    finally:
        box.kill()


def test_without_tcp_there_is_nothing_to_share():
    with services.Service(service={"listen": ""}) as one:
        box = one.root.box()
        assert "port-forward" in box.problem(409, "CONFLICT", "POST", "/ports/8000/share", json={})["detail"]


# ------------------------------------------------------------------------------------------------------ raw TCP


def tunnel(client, box, port, fields=()):
    s = client.socket()
    lines = [f"GET {box.path}/ports/{port}/ HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: tcp", *fields]
    lines += [f"{k}: {v}" for k, v in client.headers.items()]
    s.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = s.recv(1)
        assert piece, head
        head += piece
    return s, head


def everything(s):
    return b"".join(iter(lambda: s.recv(1 << 16), b""))


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_tunnel_half_closes(service, tcp, web, way):
    client = service.root if way == "unix" else tcp
    s, head = tunnel(client, web, 8002)
    with s:
        assert head.startswith(b"HTTP/1.1 101 ")
        data = os.urandom(3 << 20)
        t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        t.start()
        back = everything(s)
        t.join()
        assert back == data + b"end %d" % len(data)


def test_tunnel_refusals(service, tcp, web):
    s, head = tunnel(tcp, web, 9999)
    s.close()
    assert head.startswith(b"HTTP/1.1 502 ")
    s, head = tunnel(services.Client(tcp.address), web, 8002)
    s.close()
    assert head.startswith(b"HTTP/1.1 401 ")
    s, head = tunnel(tcp, web, 8002, ["Content-Length: 3"])
    s.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    # by host name it is the server's business, which speaks no such thing
    token = share(web, 8000)["token"]
    status, _, body = ask(service, "GET", "/", name(web, 8000), [f"X-Cloche-Port-Token: {token}", "Connection: Upgrade",
                                                                 "Upgrade: tcp"])
    assert status == 200 and b"Upgrade" not in body
    web.expect(204, "DELETE", "/ports/8000/share")


def test_tunnel_ends_with_the_sandbox(tcp):
    box = tcp.box()
    serve(box, ECHO, 8002)
    s, _ = tunnel(tcp, box, 8002)
    with s:
        s.sendall(b"x")
        assert s.recv(1) == b"x"
        box.kill()
        with contextlib.suppress(ConnectionResetError):
            assert everything(s) == b""


# ----------------------------------------------------------------------------------------------- cloche port-forward


@contextlib.contextmanager
def forward(service, box, *ports, key=None):
    env = cloche.environment({"CLOCHE_SOCKET": f"127.0.0.1:{service.port}", "CLOCHE_API_KEY": key} if key else {"CLOCHE_SOCKET": service.sock})
    p = subprocess.Popen([cloche.binary(), "port-forward", box.id, *ports], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    try:
        found = {}
        for _ in ports:
            m = re.fullmatch(rf"127\.0\.0\.1:(\d+) -> {box.id}:(\d+)\n", p.stdout.readline().decode())
            assert m, p.stderr.read()
            found[int(m[2])] = int(m[1])
        yield p, found
    finally:
        if p.poll() is None:
            p.send_signal(signal.SIGINT)
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            raise
        finally:
            p.stdout.close()
            p.stderr.close()


def exchange(port, data):
    with socket.create_connection(("127.0.0.1", port), 30) as s:
        t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        t.start()
        back = everything(s)
        t.join()
        return back


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_port_forward(service, tcp, web, way):
    with forward(service, web, "0:8002", "0:8000", key=tcp.secret if way == "tcp" else None) as (p, ports):
        data = os.urandom(1 << 20)
        assert exchange(ports[8002], data) == data + b"end %d" % len(data)
        assert exchange(ports[8002], b"") == b"end 0"
        c = http.client.HTTPConnection("127.0.0.1", ports[8000], timeout=10)
        c.request("GET", "/a")
        assert c.getresponse().read().startswith(b"GET /a HTTP/1.1\n")
        c.close()
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == 0
        for port in ports.values():  # nothing listens any more
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 5)
        assert p.stderr.read() == b""


def test_port_forward_many_connections(service, web):
    with forward(service, web, "0:8002") as (_, ports):
        results = {}

        def one(i):
            data = bytes([i]) * (1 + i * 1000)
            results[i] = exchange(ports[8002], data) == data + b"end %d" % len(data)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(100)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert [i for i in range(100) if not results.get(i)] == []


def test_port_forward_keeps_a_slow_reader(service, web):
    """Who takes nothing for a while holds up its own connection only, and then gets all of it."""
    with forward(service, web, "0:8002") as (_, ports):
        with socket.create_connection(("127.0.0.1", ports[8002]), 60) as slow:
            slow.settimeout(0.5)
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 64 << 20:
                    sent += slow.send(b"y" * 65536)
            assert 0 < sent < 64 << 20  # each queue on the way is bounded
            assert exchange(ports[8002], b"fast") == b"fastend 4"
            time.sleep(35)  # more than the service waits for a client of its API
            slow.settimeout(60)
            slow.shutdown(socket.SHUT_WR)
            assert everything(slow) == b"y" * sent + b"end %d" % sent


def test_port_forward_tells_of_resets(service, web):
    """A side that is gone takes the other one with it: nothing is left of the connection on either side."""
    with forward(service, web, "0:8002") as (p, ports):
        before = len(os.listdir(f"/proc/{p.pid}/fd"))
        for _ in range(20):
            s = socket.create_connection(("127.0.0.1", ports[8002]), 10)
            s.sendall(b"x")
            assert s.recv(1) == b"x"
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        until(lambda: len(os.listdir(f"/proc/{p.pid}/fd")) <= before, what="every descriptor to be closed")


def test_port_forward_refusals(service, tcp, web):
    def said(*args, key=None):
        env = cloche.environment({"CLOCHE_SOCKET": service.sock})
        r = subprocess.run([cloche.binary(), "port-forward", *args], capture_output=True, env=env, timeout=20)
        return r.returncode, r.stderr.decode()
    assert said(web.id)[0] == 2
    for bad in ("x", "0", "8000:", ":8000", "1:2:3", "65536", "8000:65536"):
        assert said(web.id, bad)[0] == 2, bad
    status, text = said("sbx_" + 32 * "0", "0:8000")
    assert status == 125 and "no such sandbox" in text
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, text = said(web.id, f"{taken.getsockname()[1]}:8000")
        assert status == 125 and "in use" in text and ":8000" in text
    with forward(service, web, "0:9999") as (p, ports):  # nothing listens there: said, and the client sees the end
        assert exchange(ports[9999], b"") == b""
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == 0 and b"port 9999" in p.stderr.read()


def test_cloche_ports(service, web):
    env = cloche.environment({"CLOCHE_SOCKET": service.sock})

    def cli(*args, status=0):
        r = subprocess.run([cloche.binary(), "ports", web.id, *args], capture_output=True, env=env, timeout=20)
        assert r.returncode == status, r
        return r.stdout.decode()
    lines = cli().splitlines()
    assert lines[0].split() == ["PORT", "ADDRESS", "PID", "PROCESS", "COMMAND"]
    assert {line.split()[0] for line in lines[1:]} == {"8000", "8001", "8002"}
    url = cli("--share", "8000", "--expires", "5m").strip()
    token = url.partition("cloche_token=")[2]
    assert ask(service, "GET", "/", name(web, 8000), [f"X-Cloche-Port-Token: {token}"])[0] == 200
    assert "SHARED PORT" in cli()
    assert cli("--unshare", "8000") == ""
    assert ask(service, "GET", "/", name(web, 8000), [f"X-Cloche-Port-Token: {token}"])[0] == 401
    cli("--expires", "5m", status=2)
    cli("--share", "x", status=125)


# ----------------------------------------------------------------------------------------------------- many, and faults


def test_nothing_is_left_of_many_tunnels(service, tcp):
    """Cut in all ways, by either side: descriptors of cloched, processes inside."""
    box = tcp.box(memory="256m", pids_limit=256)
    serve(box, ECHO, 8002)
    cloched = service.running("cloched")[0]
    before, inside = len(os.listdir(f"/proc/{cloched}/fd")), len(box.everything())
    for turn in range(3):
        opened = [tunnel(tcp, box, 8002)[0] for _ in range(60)]
        for i, s in enumerate(opened):
            s.sendall(b"x" * (i + 1))
            if i % 3 == 0:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if i % 3 == 1:
                s.shutdown(socket.SHUT_WR)
                everything(s)
            s.close()
    until(lambda: len(os.listdir(f"/proc/{cloched}/fd")) <= before + 1, what="cloched's descriptors to be closed")
    until(lambda: len(box.everything()) == inside, what="the processes inside to be gone")
    box.kill()
