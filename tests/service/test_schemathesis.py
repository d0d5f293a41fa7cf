# SPDX-License-Identifier: Apache-2.0
"""schemathesis walks docs/openapi.json against a running service: every answer is documented and fits, and nothing is a 5xx but
what says that a thing cannot be had here (501, 503, and 502 of a port).

Not walked: what never ends by itself (events, watch) and ports, which answer what the server inside answers; they have tests
of their own. Deterministic; bounded in time.
"""
import os
import re
import subprocess

import cloche
import openapi
import pydeps
import service as services

SECONDS = 60
NOT_WALKED = ["/v1/events", "/v1/sandboxes/{id}/files/watch", "/v1/sandboxes/{id}/ports/{port}/{path}"]
CHECKS = "status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,ignored_auth,only_known_5xx"
HOOKS = '''
import json, os
import schemathesis

ENDS_IT = {("DELETE", "/v1/sandboxes/{id}"), ("POST", "/v1/sandboxes/{id}/renew"), ("DELETE", "/v1/sandboxes/{id}/processes/{process}")}


@schemathesis.check
def only_known_5xx(ctx, response, case):
    assert response.status_code < 500 or response.status_code in (501, 503), f"{response.status_code}: {response.text[:300]}"


@schemathesis.serializer("application/x-tar", "application/octet-stream")
def raw(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.deserializer("application/x-ndjson")
def last_line(ctx, response):
    return [json.loads(line) for line in response.content.splitlines()][-1]


@schemathesis.hook
def map_query(ctx, query):
    # All of / is the host's /usr too: minutes, and files that only root may read cut it off.
    if query and ctx.operation.path.endswith("/archive") and str(query.get("path", "")).strip("/.") == "":
        query["path"] = "/workspace"
    return query


@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    # Three of four meet a sandbox and a process that are there.
    o = ctx.operation
    if path_parameters and "/sandboxes/{id}" in o.path and (o.method.upper(), o.path) not in ENDS_IT and len(str(path_parameters)) % 4:
        path_parameters["id"] = os.environ["CLOCHE_BOX"]
        if "process" in path_parameters:
            path_parameters["process"] = os.environ["CLOCHE_PROCESS"]
    return path_parameters
'''


def test_every_answer_is_documented(service, tmp_path):
    program = pydeps.need("schemathesis")
    (tmp_path / "hooks.py").write_text(HOOKS)
    key = service.key("schemathesis")
    box = key.box(memory="128m", resume_on_touch=True)
    process = box.start(["echo", "hi"])
    process.wait()
    command = [
        program, "run", openapi.PATH, "--url", f"http://127.0.0.1:{service.port}", "--header",
        f"Authorization: Bearer {key.secret}", "--workers", "1", "--max-examples", "10", "--generation-deterministic", "--phases",
        "examples,coverage,fuzzing", "--max-time",
        str(SECONDS), "--request-timeout", "10", "--checks", CHECKS, "--suppress-health-check", "all", "--no-color",
        "--max-failures", "20"
    ]
    for path in NOT_WALKED:
        command += ["--exclude-path", path]
    try:
        done = subprocess.run(
            command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=SECONDS * 3, env={
                **cloche.environment(), "PYTHONPATH": str(tmp_path), "SCHEMATHESIS_HOOKS": "hooks", "PYTHONHASHSEED": "0",
                "CLOCHE_BOX": box.id, "CLOCHE_PROCESS": process.id
            })
    finally:
        for row in key.get("/v1/sandboxes", limit=1000)["sandboxes"]:
            if row["state"] != "ended":
                key.request("DELETE", f"/v1/sandboxes/{row['id']}")
    walked = re.search(r"(\d+) generated", done.stdout)
    assert done.returncode == 0, done.stdout[-12000:].replace(key.secret, "clk_…")
    assert walked and int(walked[1]) > 300, done.stdout[-2000:]


def test_the_walk_can_fail(tmp_path, service):
    """The same walk with a document that promises something else finds it."""
    program = pydeps.need("schemathesis")
    text = openapi.PATH.read_text().replace('"required": ["ok"]', '"required": ["ko"]', 1)
    assert text != openapi.PATH.read_text()
    (tmp_path / "wrong.json").write_text(text)
    done = subprocess.run([
        program, "run", "wrong.json", "--url", f"http://127.0.0.1:{service.port}", "--include-path", "/healthz", "--max-examples",
        "1", "--generation-database", "none", "--checks", "response_schema_conformance", "--no-color"
    ], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env={k: v for k, v in os.environ.items() if not k.startswith("SCHEMA")})
    assert done.returncode == 1 and "ko" in done.stdout, done.stdout[-3000:]
    assert services.Client(service.sock).request("GET", "/healthz").status == 200
