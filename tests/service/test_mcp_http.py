# SPDX-License-Identifier: Apache-2.0
"""/mcp of the service: Streamable HTTP. What the tools do is in test_mcp.py; here is what HTTP adds, and who may do what."""
import base64
import json
import threading
import time

import pytest
import service as services
from contract import until
from mcp_stdio import META, MODERN, REVISIONS, outcome, processes_with
from test_mcp import HOSTILE, PNG, WRITE, alive, running, sleeper

pytestmark = pytest.mark.needs("native", "python", "service")
BOTH = "application/json, text/event-stream"


class Http:
    """A client of /mcp that says what a test wants said."""
    def __init__(self, client, modern=False):
        self.client, self.modern, self.last, self.headers, self.notes = client, modern, 0, {}, []

    def post(self, message, headers=None, timeout=60):
        return self.client.request("POST", "/mcp", json=message, headers={"Accept": BOTH, **self.headers, **(headers or {})}, timeout=timeout)

    def message(self, method, params=None):
        self.last += 1
        params = dict(params or {})
        if self.modern:
            params["_meta"] = {**MODERN, **params.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}

    def fields(self, message):
        """What 2026-07-28 wants in the header."""
        if not self.modern:
            return {}
        name = message["params"].get("name") or message["params"].get("uri")
        return {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": message["method"], **({"Mcp-Name": name} if name else {})}

    def ask(self, method, params=None, status=200, timeout=60):
        message = self.message(method, params)
        answer = self.post(message, self.fields(message), timeout)
        assert answer.status == status, answer
        if answer.headers["Content-Type"] == "text/event-stream":
            events = [json.loads(e.removeprefix("event: message\ndata: ")) for e in answer.body.decode().split("\n\n") if e]
            self.notes += events[:-1]
            return events[-1]
        return answer.json

    def result(self, method, params=None):
        return self.ask(method, params)["result"]

    def hello(self, revision="2025-11-25"):
        message = self.message("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
        answer = self.post(message)
        assert answer.status == 200, answer
        self.headers = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"], "MCP-Protocol-Version": answer.json["result"]["protocolVersion"]}
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
        return answer.json["result"]

    def tool(self, name, _meta=None, **arguments):
        return outcome(self.result("tools/call", {"name": name, "arguments": arguments, **({"_meta": _meta} if _meta else {})}))

    def close(self):
        return self.client.request("DELETE", "/mcp", headers=self.headers)


@pytest.fixture
def http(service):
    one = Http(service.root)
    one.hello()
    yield one
    one.close()
    until(lambda: not alive(service))


@pytest.fixture
def stateless(service):
    return Http(service.root, modern=True)


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_revision(service, revision):
    one = Http(service.root)
    assert one.hello(revision)["protocolVersion"] == revision
    assert len(one.result("tools/list")["tools"]) == 9
    assert one.tool("run_python", code="print(6 * 7)").text == "exit=0\nstdout:\n42\nstderr:"
    assert "listChanged" not in json.dumps(one.result("tools/list")) and one.close().status == 204
    assert one.post(one.message("ping")).status == 404, "the session is over"


def test_the_stateless_revision(stateless, service):
    assert stateless.result("server/discover")["supportedVersions"][0] == "2026-07-28"
    assert stateless.tool("run_python", code="print(1)").structured["stdout"] == "1\n"
    box = stateless.tool("write_file", path="a", content="x").structured["sandbox"]
    assert stateless.tool("read_file", path="a", sandbox=box).text == "x"
    assert Http(service.root, modern=True).tool("run_shell", command="cat a", sandbox=box).structured["stdout"] == "x", "the owner's, whatever connection"
    assert stateless.tool("read_file", path="a").is_error
    assert stateless.tool("reset", sandbox=box).structured["ended"] == [box]
    assert stateless.ask("nope", status=404)["error"]["code"] == -32601
    assert stateless.ask("initialize", status=404)["error"]["code"] == -32601


@pytest.mark.parametrize("fields", [{}, {"MCP-Protocol-Version": "2026-07-28"}, {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"},
                                    {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"},
                                    {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "run_shell"},
                                    {"MCP-Protocol-Version": "2025-11-25", "Mcp-Method": "tools/call", "Mcp-Name": "run_python"}])
def test_the_header_says_what_the_body_says(stateless, service, fields):
    message = stateless.message("tools/call", {"name": "run_python", "arguments": {"code": "1"}})
    answer = stateless.post(message, fields)
    assert answer.status == 400 and answer.json["error"]["code"] == -32020 and answer.json["id"] == message["id"]
    message["params"]["_meta"][META + "protocolVersion"] = "2030-01-01"
    answer = stateless.post(message, {"MCP-Protocol-Version": "2030-01-01", "Mcp-Method": "tools/call", "Mcp-Name": "run_python"})
    assert answer.status == 400 and answer.json["error"]["code"] == -32022


@pytest.mark.parametrize("meta, words", [(None, "protocolVersion"), ({}, "protocolVersion"), ({META + "clientCapabilities": {}}, "protocolVersion"),
                                         ({META + "protocolVersion": "2026-07-28"}, "clientCapabilities"),
                                         ({META + "protocolVersion": "2026-07-28", META + "clientCapabilities": 1}, "clientCapabilities")])
def test_who_says_stateless_in_the_header_has_to_say_all_of_it(stateless, meta, words):
    message = stateless.message("tools/list")
    del message["params"]["_meta"]
    message["params"] |= {} if meta is None else {"_meta": meta}
    answer = stateless.post(message, stateless.fields(message))
    assert answer.status == 400 and answer.json["id"] == message["id"] and answer.json["error"]["code"] == -32602, answer
    assert words in answer.json["error"]["message"]


def test_files_plots_and_resources(http):
    r = http.tool("run_python", code=WRITE + "put('p.png', png); put('t.csv', b'1,2')")
    assert [c["type"] for c in r.content] == ["text", "image", "resource_link"] or [c["type"] for c in r.content] == ["text", "resource_link", "image"]
    listed = {x["name"]: x["uri"] for x in http.result("resources/list")["resources"]}
    assert http.result("resources/read", {"uri": listed["t.csv"]})["contents"][0]["text"] == "1,2"
    assert base64.b64decode(http.result("resources/read", {"uri": listed["p.png"]})["contents"][0]["blob"]) == PNG
    assert http.ask("resources/read", {"uri": "cloche://runs/x/artifacts/y"})["error"]["code"] == -32002
    box = http.tool("write_file", path="a.py", content="print('kept')").structured["sandbox"]
    assert http.tool("run_python", code="exec(open('a.py').read())", sandbox="session").structured["stdout"] == "kept\n"
    assert http.tool("list_files").text == "a.py  13\n" and http.tool("list_sandboxes").structured["sandboxes"][0]["id"] == box


def test_the_end_of_a_session_ends_its_sandboxes(service):
    one = Http(service.root)
    one.hello()
    one.tool("write_file", path="x", content="x")
    assert len(alive(service)) == 1 and one.close().status == 204
    until(lambda: not alive(service))
    assert one.close().status == 404


def test_progress_comes_as_events(http):
    r = http.tool("run_python", _meta={"progressToken": "t"}, code="import time; time.sleep(3.2)")
    told = [n["params"] for n in http.notes]
    assert not r.is_error and 2 <= len(told) <= 3 and all(t["progressToken"] == "t" and t["total"] == 30 for t in told)
    assert told[0]["progress"] < told[1]["progress"]


@pytest.mark.parametrize("modern", [False, True])
def test_who_hangs_up_ends_the_run(service, modern):
    word, command = sleeper()
    one = Http(service.root, modern)
    if not modern:
        one.hello()
    message = one.message("tools/call", {"name": "run_shell", "arguments": {"command": f"exec {command}"}})
    connection = service.root.connection()
    connection.request("POST", "/mcp", json.dumps(message), {"Content-Type": "application/json", **one.headers, **one.fields(message)})
    until(lambda: processes_with(word))
    connection.close()
    until(lambda: not processes_with(word))
    until(lambda: not running(service))


def test_cancelling_ends_the_run(http):
    word, command = sleeper()
    message, got = http.message("tools/call", {"name": "run_shell", "arguments": {"command": f"exec {command}"}}), []
    connection = http.client.connection()
    connection.request("POST", "/mcp", json.dumps(message), {"Content-Type": "application/json", **http.headers})
    until(lambda: processes_with(word))
    answer = http.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}})
    assert answer.status == 202 and not got
    until(lambda: not processes_with(word))
    connection.close()


def test_many_at_a_time(http):
    answers = {}

    def call(i):
        answers[i] = http.post({"jsonrpc": "2.0", "id": f"p{i}", "method": "tools/call",
                                "params": {"name": "run_python", "arguments": {"code": f"print({i})"}}}).json
    threads = [threading.Thread(target=call, args=[i]) for i in range(12)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(answers[i]["id"] == f"p{i}" and answers[i]["result"]["structuredContent"]["stdout"] == f"{i}\n" for i in range(12))


def test_a_batch(service):
    one = Http(service.root)
    one.hello("2025-03-26")
    answer = one.post([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/initialized"},
                       {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "print(1)"}}}])
    assert answer.status == 200 and sorted(a["id"] for a in answer.json) == ["a", "b"]
    assert one.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}]).status == 202
    assert one.post([]).json["error"]["code"] == -32600
    one.close()


# ----------------------------------------------------------------------------------------------------- who may what


def test_sessions_belong_to_their_owner(tenants, service):
    a, b = (Http(t) for t in tenants)
    a.hello()
    box = a.tool("write_file", path="secret", content="x").structured["sandbox"]
    b.hello()
    stolen = Http(tenants[1])
    stolen.headers = a.headers
    assert stolen.post(stolen.message("ping")).status == 404 and stolen.close().status == 404
    r = b.tool("read_file", path="secret", sandbox=box)
    assert r.is_error and "no such sandbox" in r.text.lower()
    assert Http(tenants[1], modern=True).tool("reset", sandbox=box).is_error
    assert [s["owner"] for s in service.root.get("/v1/sandboxes", state="running")["sandboxes"]] == [f"key:{tenants[0].key_id}"]
    assert a.tool("read_file", path="secret").text == "x"
    assert a.close().status == b.close().status == 204


def test_the_api_s_rules_hold(service):
    strict = service.key("strict", quota={"runs_per_minute": 3})
    one = Http(strict)
    one.hello()
    told = [one.tool("run_python", code="1").text for _ in range(5)]
    assert told[2].startswith("exit=0") and told[4] == "Too many runs; try later."
    rows = service.root.get("/v1/audit", limit=1000)["rows"]
    assert any(r["action"] == "run.start" and r["actor"] == f"key:{strict.key_id}" and (r["session"] or "").startswith("mcp-") for r in rows) or \
        len(rows) == 1000
    one.close()


def test_who_is_not_heard(service):
    one = Http(service.root)
    message = one.message("initialize", {"protocolVersion": "2025-11-25"})
    for headers, status in (({"Origin": "https://evil.example"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Content-Type": "text/plain"}, 415),
                            ({"MCP-Protocol-Version": "1999-01-01"}, 400), ({"Mcp-Session-Id": "mcp_" + 32 * "0"}, 404)):
        answer = one.post(message, headers)
        assert answer.status == status, (headers, answer)
    assert one.post(one.message("ping")).status == 400, "without a session"
    nobody = service.key("nobody")
    nobody.headers.pop("Authorization")
    assert Http(nobody).post(message).status == 401
    for method in ("GET", "PUT"):
        assert service.root.request(method, "/mcp").status == 405


def test_pages_of_its_own_origin_are_heard_with_a_key(service):
    """Anything else that is in a browser is not, and neither is such a page where no key is asked for: there a proxy may stand before it."""
    host, message = f"127.0.0.1:{service.port}", Http(service.root).message("initialize", {"protocolVersion": "2025-11-25"})
    one = Http(service.key("page"))
    for origin, site, status in ((f"http://{host}", "same-origin", 200), (f"http://{host}", "cross-site", 403), ("null", None, 403), ("http://127.0.0.1:1", None, 403),
                                 (f"http://{host}.evil.example", None, 403), ("http://127.0.0.1", None, 403), (host, None, 403)):
        answer = one.post(message, {"Host": host, "Origin": origin, **({"Sec-Fetch-Site": site} if site else {})})
        assert answer.status == status, (origin, site, answer)
    for client in (service.root, one.client):
        on_socket, path = client is service.root, "/mcp" if client is service.root else "/v1/sandboxes"
        answer = client.request("POST", path, json=message if on_socket else {}, headers={"Host": host, "Origin": f"http://{host}"})
        assert answer.status == 403 and answer.json["code"] == "FORBIDDEN", answer
    one.client.headers.pop("Authorization")
    assert one.post(message, {"Host": host, "Origin": f"http://{host}"}).status == 401


def test_more_output_than_a_model_gets_is_dropped():
    """By the operator's default of every run; what is kept of it is not more than the answer may have."""
    with services.Service(more={"defaults": {"max_output": "4m"}}) as s:
        one = Http(s.root)
        one.hello()
        r = one.tool("run_python", code="print('x' * 3000000)")
        assert not r.is_error and r.structured["output"]["stdout"] == {"bytes": 3000001, "kept": 1 << 20, "dropped": 3000001 - (1 << 20)}
        one.close()


def test_there_is_an_end_to_sessions(service):
    greedy, made = service.key("greedy"), []
    for _ in range(33):
        one = Http(greedy)
        answer = one.post(one.message("initialize", {"protocolVersion": "2025-11-25"}))
        made.append((answer.status, answer.headers.get("Mcp-Session-Id")))
    assert [s for s, _ in made] == [200] * 32 + [429]
    other = Http(service.key("other"))
    other.hello()
    other.close()
    for _, session in made[:32]:
        one.headers = {"Mcp-Session-Id": session}
        assert one.close().status == 204
    Http(greedy).hello()


def test_an_initialize_that_fails_leaves_no_session(service):
    one = Http(service.key("failing"))
    for _ in range(40):
        answer = one.post(one.message("initialize"))
        assert answer.status == 200 and answer.json["error"]["code"] == -32602 and "Mcp-Session-Id" not in answer.headers


@pytest.mark.parametrize("line, number, code", HOSTILE, ids=range(len(HOSTILE)))
def test_malformed_messages(http, line, number, code):
    answer = http.client.request("POST", "/mcp", body=line, headers={"Content-Type": "application/json", **http.headers})
    assert answer.status in (200, 400), answer
    if answer.headers["Content-Type"] == "application/json":
        assert answer.json["error"]["code"] == code and answer.json["id"] == number, answer
    else:
        assert answer.json["code"] == "INVALID_REQUEST", answer
    assert http.result("ping") == {}


def test_an_id_that_is_under_way(http):
    first = threading.Thread(target=lambda: http.post({"jsonrpc": "2.0", "id": "same", "method": "tools/call",
                                                       "params": {"name": "run_shell", "arguments": {"command": "sleep 1"}}}))
    first.start()
    time.sleep(0.5)
    answer = http.post({"jsonrpc": "2.0", "id": "same", "method": "ping"})
    assert answer.status == 400 and answer.json["id"] is None and answer.json["error"]["code"] == -32600
    first.join()
