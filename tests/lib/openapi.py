# SPDX-License-Identifier: Apache-2.0
"""Holds every answer that a test gets against docs/openapi.json: its status, content type and body must be described there."""
import functools
import json
import re

import cloche
import jsonschema

PATH = cloche.TOP / "docs" / "openapi.json"


@functools.lru_cache
def document():
    return json.loads(PATH.read_text())


@functools.lru_cache
def validator(ref):
    schema = {**json.loads(ref), "components": document()["components"]}
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


@functools.lru_cache
def patterns():
    """[(compiled, template)], the ones without parameters first; a parameter called path takes slashes."""
    found = []
    for template in document()["paths"]:
        text = re.sub(r"{(\w+)}", lambda m: ".*" if m[1] == "path" else "[^/]+",
                      re.escape(template).replace(r"\{", "{").replace(r"\}", "}"))
        found.append((re.compile(text), template))
    return sorted(found, key=lambda row: row[1].count("{"))


def operation(method, path):
    """(template, operation) for a request, or (None, None)."""
    for compiled, template in patterns():
        if compiled.fullmatch(path):
            return template, document()["paths"][template].get(method.lower())
    return None, None


def resolve(value):
    while "$ref" in value:
        target = document()
        for part in value["$ref"][2:].split("/"):
            target = target[part]
        value = target
    return value


def check_value(name, value):
    """VALUE fits the schema NAME."""
    check_schema({"$ref": f"#/components/schemas/{name}"}, value, name)


def check_schema(schema, value, what):
    errors = sorted(validator(json.dumps(schema, sort_keys=True)).iter_errors(value), key=str)
    assert not errors, f"{what}: {errors[0].message[:500]} at {list(errors[0].absolute_path)}"


def check_answer(method, path, status, content_type, body):
    """An answer to METHOD PATH (without query) is one that the document describes. Unknown routes answer 404 or 405."""
    template, op = operation(method, path)
    what = f"{method} {path}: {status} {content_type}"
    kind = (content_type or "").split(";")[0].strip().lower()
    if op is None:
        assert status >= 400, f"{what}: the document knows no such route"
        responses = {}
    else:
        responses = op["responses"]
        if "default" in responses and kind != "application/problem+json":
            return
        assert str(status) in responses or status in (405, 400, 404), f"{what}: this status is not in the document"
    described = resolve(responses[str(status)]).get("content", {}) if str(status) in responses else {}
    if status >= 400 and not (kind == "application/json" and kind in described):
        if method != "HEAD":
            assert kind == "application/problem+json", f"{what}: {body[:300]!r}"
            problem = json.loads(body)
            check_value("Problem", problem)
            assert problem["status"] == status, f"{what}: {problem}"
        return
    content = resolve(responses[str(status)]).get("content")
    if not content:
        assert not body, f"{what}: a body where the document has none: {body[:300]!r}"
        return
    assert kind in content, f"{what}: this content type is not in the document, only {list(content)}"
    schema = content[kind].get("schema")
    if schema and kind == "application/json":
        check_schema(schema, json.loads(body), what)
    if schema and kind == "application/x-ndjson":
        assert body.endswith(b"\n") or not body, what
        for line in body.splitlines():
            check_schema(schema, json.loads(line), what)
