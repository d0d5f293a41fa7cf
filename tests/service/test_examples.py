# SPDX-License-Identifier: Apache-2.0
"""Every example of a request in docs/openapi.json works as it stands."""
import openapi
import pytest
from contract import until

EXAMPLES = [(method.upper(), path, name, example["value"]) for path, methods in openapi.document()["paths"].items()
            for method, operation in methods.items() for media in operation.get("requestBody", {}).get("content", {}).values()
            for name, example in media.get("examples", {}).items()]


@pytest.mark.parametrize("method, path, name, value", EXAMPLES, ids=[f"{m} {p} {n}" for m, p, n, _ in EXAMPLES])
def test_example(client, boxes, service, method, path, name, value):
    if "{id}" in path:
        box = boxes(profile="dev", **({"network": "allow"} if path.endswith("/network") else {}))
        process = None
        if "{process}" in path:
            process = box.start(["sleep", "78"], tty=True)
        if path.endswith("/move"):
            box.mkdir("/workspace/a")
        path = path.replace("{id}", box.id).replace("{process}", process.id if process else "").replace("{port}", "8000")
    answer = client.request(method, path, json=value)
    assert answer.status in (200, 201, 204), answer
    if path == "/v1/sandboxes":
        client.expect(200, "DELETE", f"/v1/sandboxes/{answer.json['id']}")
    if path == "/v1/keys":
        client.expect(204, "DELETE", f"/v1/keys/{answer.json['id']}")
    kind = answer.headers.get("Content-Type", "")
    if answer.body and not kind.startswith("application/x-ndjson") and "exit_code" in answer.json and "reason" in answer.json:
        assert answer.json["reason"] == "exited", answer


def test_the_document_is_served(service):
    for client in (service.root, service.key("reader")):
        assert client.expect(200, "GET", "/openapi.json").json == openapi.document()


def test_flags_of_the_query_are_present_true_or_refused(client, boxes):
    box = boxes()
    for value, stream in (("stream", True), ("stream=true", True), ("stream=", True)):
        r = client.request("POST", f"{box.path}/exec?{value}", json={"command": ["true"]})
        assert r.headers["Content-Type"].startswith("application/x-ndjson") == stream
    for value in ("stream=1", "stream=yes", "stream=false&stream"):
        box.problem(400, "INVALID_REQUEST", "POST", f"/exec?{value}", json={"command": ["true"]})
    assert until(lambda: box.everything() == [])
