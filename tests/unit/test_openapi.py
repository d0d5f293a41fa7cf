# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json is valid, says the same as the tables in src/ and as docs/api.md, and has the routes of the program."""
import json
import re
import subprocess

import cloche
import jsonschema
import pydeps
import pytest

PATH = cloche.TOP / "docs" / "openapi.json"
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
DOC = json.loads(PATH.read_text())
SCHEMAS = DOC["components"]["schemas"]
API = (cloche.TOP / "docs" / "api.md").read_text()


def walk(value, where="#"):
    """(where, dict) of every object in the document."""
    if isinstance(value, dict):
        yield where, value
        for key, below in value.items():
            yield from walk(below, f"{where}/{key}")
    elif isinstance(value, list):
        for i, below in enumerate(value):
            yield from walk(below, f"{where}/{i}")


def resolve(ref):
    assert ref.startswith("#/"), f"{ref}: leaves the document"
    value = DOC
    for part in ref[2:].split("/"):
        value = value[part.replace("~1", "/").replace("~0", "~")]
    return value


def operations():
    for path, methods in DOC["paths"].items():
        for method, operation in methods.items():
            assert method in METHODS, f"{path}: {method}"
            yield path, method, operation


def rows(name, macro, field):
    text = (cloche.TOP / "src" / "sandbox" / name).read_text()
    return re.findall(rf"^{macro}\({field}", text, re.M)


def test_is_valid_openapi():
    done = subprocess.run([pydeps.need("openapi-spec-validator"), "--schema", "3.1", PATH], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_references_resolve_and_every_component_is_used():
    used = set()
    for where, value in walk(DOC):
        if isinstance(value.get("$ref"), str):
            assert isinstance(resolve(value["$ref"]), dict), where
            used.add(value["$ref"])
    known = {f"#/components/{kind}/{name}" for kind in ("schemas", "parameters", "responses") for name in DOC["components"][kind]}
    assert known - used <= {"#/components/responses/MethodNotAllowed"}, known - used


def test_operation_ids_are_unique_and_path_parameters_are_described():
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    for path, method, operation in operations():
        parameters = [resolve(p["$ref"]) if "$ref" in p else p for p in operation.get("parameters", [])]
        described = {p["name"] for p in parameters if p["in"] == "path"}
        assert described == set(re.findall(r"{(\w+)}", path)), f"{method} {path}"
        assert len({(p["name"], p["in"]) for p in parameters}) == len(parameters)


def test_error_codes_are_those_of_the_table():
    assert SCHEMAS["ErrorCode"]["enum"] == [c for c in rows("codes.def", "CODE", r"(\w+)") if c != "NONE"]


def test_reasons_are_those_of_the_table():
    assert SCHEMAS["Reason"]["enum"] == rows("reasons.def", "REASON", r'\w+,\s*"(\w+)"')


def test_states_are_those_of_the_table():
    moves = re.findall(r"^TRANSITION\((\w+),\s*\w+,\s*(\w+)\)", (cloche.TOP / "src/sandbox/states.def").read_text(), re.M)
    assert set(SCHEMAS["State"]["enum"]) == {s.lower() for move in moves for s in move}


def test_limits_hit_are_those_of_the_model():
    text = (cloche.TOP / "src" / "sandbox" / "model.c").read_text()
    names = re.findall(r'"(\w+)"', re.search(r"limit_hit_names\[[^]]*\]\s*=\s*{(.*?)}", text, re.S)[1])
    assert SCHEMAS["LimitHit"]["enum"] == names


def test_request_codes_are_those_of_the_page_and_their_responses_exist():
    listed = dict(re.findall(r"`([A-Z_]+)` (\d{3})\b", re.search(r"or one of (.*?)\.\n", API, re.S)[1]))
    assert SCHEMAS["ApiCode"]["enum"] == list(listed)
    texts = {name: r["description"] for name, r in DOC["components"]["responses"].items()}
    for code in listed:
        assert any(code in text for text in texts.values()), code
    table = cloche.TOP / "src" / "service" / "problem.def"
    if table.exists():  # it comes with the service
        assert re.findall(r"^PROBLEM\((\w+),\s*(\d+)", table.read_text(), re.M) == list(listed.items())


def test_a_problem_may_have_only_statuses_of_the_tables():
    statuses = {int(s) for s in re.findall(r"^CODE\(\w+,\s*(\d+)", (cloche.TOP / "src/sandbox/codes.def").read_text(), re.M)}
    statuses |= {int(s) for s in re.findall(r"`[A-Z_]+` (\d{3})\b", API)} | {405, 414, 431, 501, 502}
    for path, method, operation in operations():
        for status in operation["responses"]:
            assert status == "default" or int(status) in statuses | {201, 202, 204, 206}, f"{method} {path}: {status}"


def test_requests_are_closed():
    """What a caller may send is listed: a schema of a request with open keys would hide a typing error."""
    for path, method, operation in operations():
        for kind, media in operation.get("requestBody", {}).get("content", {}).items():
            if kind == "application/json":
                schema = resolve(media["schema"]["$ref"])
                assert schema["additionalProperties"] is False, f"{method} {path}"


def test_examples_fit_their_schemas():
    count = 0
    for path, method, operation in operations():
        for media in operation.get("requestBody", {}).get("content", {}).values():
            for name, example in media.get("examples", {}).items():
                schema = {**media["schema"], "components": DOC["components"]}
                jsonschema.Draft202012Validator(schema).validate(example["value"])
                count += 1
    assert count >= 10


@pytest.mark.parametrize("body", [
    {}, {"command": ["true"], "language": "python", "code": "1"}, {"language": "python"}, {"command": ["true"], "args": ["1"]},
    {"command": ["true"], "privileged": True}, {"command": ["true"], "memory": 0}, {"command": []}, {"command": ["true"], "user": "root"},
    {"command": ["true"], "network": "host"}, {"command": ["true"], "timeout": None}])
def test_schema_refuses(body):
    schema = {"$ref": "#/components/schemas/RunRequest", "components": DOC["components"]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(body)


def same_pattern(pattern):
    """A pattern without the names of its parts: {id}, :id, <id> and * are one."""
    return re.sub(r"{[^}]*}|:\w+|<[^>]*>|\*+", "{}", pattern.split("?")[0]).rstrip("/") or "/"


def test_routes_of_the_program_and_of_the_document_are_the_same():
    service = cloche.TOP / "src" / "service" / "routes.def"
    program = re.sub(r"cloche$", "cloched", cloche.binary())
    if not service.exists():
        pytest.skip("no service yet: src/service/routes.def is not there")
    done = subprocess.run([program, "--routes"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = set()
    for line in done.stdout.splitlines():
        method, pattern = line.split()[:2]
        methods = METHODS - {"trace"} if method in ("ANY", "*") else {method.lower()}
        listed |= {(m, same_pattern(pattern)) for m in methods}
    ours = {(method, same_pattern(path)) for path, method, _ in operations()}
    assert listed - ours == set(), "in the program only"
    assert ours - listed == set(), "in the document only"
