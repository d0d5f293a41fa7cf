# SPDX-License-Identifier: Apache-2.0
"""`cloche mcp` as a client sees it, byte for byte: without a service and with one. Published clients: tests/clients."""
import base64
import itertools
import json
import os
import signal
import subprocess
import time

import cloche
import jsonschema
import pytest
import service as services
from mcp_stdio import META, REVISIONS, Mcp, outcome, processes_with, until

pytestmark = pytest.mark.needs("native", "python", "service")
SERIAL = itertools.count(int(time.time()) % 100000 * 100)
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture(params=["direct", "service"])
def way(request, service):
    """Environment of either way."""
    return {"CLOCHE_DIRECT": "1"} if request.param == "direct" else {"CLOCHE_SOCKET": service.sock}


@pytest.fixture
def served(service):
    return {"CLOCHE_SOCKET": service.sock}


@pytest.fixture
def mcp(way):
    with Mcp(env=way) as m:
        m.hello()
        yield m


@pytest.fixture
def kept(served):
    with Mcp(env=served) as m:
        m.hello()
        yield m


def sleeper():
    """A command that is found among the host's processes."""
    word = f"9{next(SERIAL)}.5"
    return word, f"sleep {word}"


def alive(service):
    return [b for b in service.root.get("/v1/sandboxes")["sandboxes"] if b["state"] != "ended"]


def running(service):
    return [r for r in service.root.get("/v1/runs")["runs"] if r["state"] == "running"]


# ------------------------------------------------------------------------------------------------- the handshake


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_revision_is_spoken_as_it_was(way, revision):
    with Mcp(env=way) as m:
        r = m.hello(revision)
        assert r["protocolVersion"] == revision and r["serverInfo"]["name"] == "cloche" and "tools" in r["capabilities"]
        assert ("title" in r["serverInfo"]) == (revision >= "2025-06-18")
        tools = m.result("tools/list")["tools"]
        assert [t["name"] for t in tools] == ["run_python", "run_node", "run_shell", "write_file", "read_file", "list_files",
                                              "install_packages", "list_sandboxes", "reset"]
        for t in tools:
            assert ("annotations" in t) == (revision >= "2025-03-26")
            assert ("outputSchema" in t) == (revision >= "2025-06-18")
            jsonschema.Draft202012Validator.check_schema(t["inputSchema"])
        ran = m.tool("run_python", code="open('/output/x.bin', 'wb').write(b'\\0'); print(1)")
        assert not ran.is_error and ran.text.startswith("exit=0\nstdout:\n1\n")
        assert (ran.structured is not None) == (revision >= "2025-06-18")
        assert ("resource_link" in [c["type"] for c in ran.content]) == (revision >= "2025-06-18")


@pytest.mark.parametrize("asked", ["2026-07-28", "2099-01-01", "1.0", ""])
def test_an_unknown_revision_gets_the_newest_with_a_handshake(way, asked):
    with Mcp(env=way) as m:
        assert m.hello(asked)["protocolVersion"] == "2025-11-25"


def test_the_handshake_comes_first_and_once(way):
    with Mcp(env=way) as m:
        assert m.result("ping") == {}
        for method in ("tools/list", "tools/call", "resources/list"):
            assert m.error(method)["code"] == -32600
        assert m.error("initialize", {"capabilities": {}})["code"] == -32602
        m.hello()
        assert m.error("initialize", {"protocolVersion": "2025-11-25"})["code"] == -32600
        assert m.error("server/discover")["code"] == -32601
        assert m.result("tools/list")["tools"]


# ----------------------------------------------------------------------------------------------------- 2026-07-28


def test_the_stateless_revision(way):
    with Mcp(env=way, modern=True) as m:
        r = m.result("server/discover")
        assert r["supportedVersions"] == ["2026-07-28", *reversed(REVISIONS)] and r["resultType"] == "complete"
        assert r["_meta"][META + "serverInfo"]["name"] == "cloche" and r["ttlMs"] >= 0 and r["cacheScope"] == "private"
        listed = m.result("tools/list")
        assert listed["resultType"] == "complete" and listed["ttlMs"] > 0 and listed["tools"]
        ran = m.tool("run_python", code="print(2)")
        assert ran.result["resultType"] == "complete" and ran.structured["stdout"] == "2\n"
        assert m.error("ping")["code"] == -32601 and m.error("initialize", {"protocolVersion": "2025-11-25"})["code"] == -32601
        m.modern = False  # both eras on one connection
        assert m.error("tools/list")["code"] == -32600
        assert m.hello()["protocolVersion"] == "2025-11-25"


def test_the_stateless_revision_names_what_is_wrong(way):
    with Mcp(env=way) as m:
        e = m.error("tools/list", {"_meta": {META + "protocolVersion": "2027-01-01", META + "clientCapabilities": {}}})
        assert e["code"] == -32022 and e["data"] == {"supported": ["2026-07-28", *reversed(REVISIONS)], "requested": "2027-01-01"}
        assert m.error("tools/list", {"_meta": {META + "protocolVersion": 5}})["code"] == -32602
        assert m.error("tools/list", {"_meta": {META + "protocolVersion": "2026-07-28"}})["code"] == -32602


def test_in_the_stateless_revision_a_kept_sandbox_is_named(served, service):
    with Mcp(env=served, modern=True) as m:
        one = m.tool("write_file", path="a.txt", content="first").structured["sandbox"]
        two = m.tool("write_file", path="a.txt", content="second").structured["sandbox"]
        assert one != two, "nothing of the connection is remembered"
        assert m.tool("read_file", path="a.txt", sandbox=one).text == "first"
        assert m.tool("run_python", code="print(open('a.txt').read())", sandbox=two).structured["stdout"] == "second\n"
        lost = m.tool("read_file", path="a.txt")
        assert lost.is_error and "sandbox" in lost.text
        assert "No such" not in m.tool("run_shell", command="ls").text
        assert m.tool("run_python", code="1", sandbox="session").is_error
        schema = {t["name"]: t["inputSchema"] for t in m.result("tools/list")["tools"]}
        assert "sandbox" in schema["read_file"]["required"] and "sandbox" not in schema["write_file"]["required"]
        assert sorted(m.tool("reset", sandbox=one).structured["ended"]) == [one]
        assert [b["id"] for b in m.tool("list_sandboxes").structured["sandboxes"] if b["state"] == "running"] == [two]


# ------------------------------------------------------------------------------------------------------------ runs


def test_the_programs_own_answer_goes_through(mcp):
    r = mcp.tool("run_python", code="import sys\nprint('out')\nprint('err', file=sys.stderr)\nraise SystemExit(3)")
    assert r.is_error and r.text == "exit=3\nstdout:\nout\nstderr:\nerr"
    assert r.structured["exit_code"] == 3 and r.structured["error_code"] == "COMMAND_FAILED" and not r.structured["retryable"]
    r = mcp.tool("run_python", code="1/0")
    assert 'File "<stdin>", line 1' in r.text and "ZeroDivisionError" in r.structured["stderr"]
    r = mcp.tool("run_shell", command="cat; echo \"$0 $HOME\"; exit 7")
    assert r.text == "exit=7\nstdout:\nbash /tmp\nstderr:" and r.structured["exit_code"] == 7
    assert mcp.tool("run_shell", command="x=5\n" + "#" * 200000 + "\necho $x").structured["stdout"] == "5\n"


@pytest.mark.needs("node")
def test_node(mcp):
    assert mcp.tool("run_node", code="console.log([1, 2, 3].map(x => x * 2).join())").structured["stdout"] == "2,4,6\n"


def test_each_run_is_new(mcp):
    assert not mcp.tool("run_shell", command="echo x >/workspace/left; echo x >/tmp/left").is_error
    assert mcp.tool("run_shell", command="ls /workspace /tmp").structured["stdout"].split() == ["/tmp:", "/workspace:"]


def test_ends_are_told_in_general_words(mcp):
    r = mcp.tool("run_python", code="while True: pass", timeout=0.5)
    assert r.is_error and r.structured["reason"] == "timeout" and r.structured["timed_out"]
    assert r.text.startswith("exit=124\n") and "[The code did not finish within 0.5 seconds.]" in r.text
    r = mcp.tool("run_python", code="x = bytearray(1 << 30)")
    assert r.is_error and (r.structured["reason"] == "oom" or "MemoryError" in r.structured["stderr"])
    r = mcp.tool("run_shell", command="kill -9 $$")
    assert r.structured["signal"] == 9 and r.text.startswith("exit=137\n")


def test_a_model_may_ask_for_less_time_but_not_for_more(way):
    with Mcp(["--timeout", "1s"], way) as m:
        m.hello()
        assert m.result("tools/list")["tools"][0]["inputSchema"]["properties"]["timeout"]["maximum"] == 1
        began = time.monotonic()
        r = m.tool("run_python", code="import time; time.sleep(60)", timeout=50)
        assert r.structured["reason"] == "timeout" and time.monotonic() - began < 5


def test_options_are_for_every_sandbox(way):
    with Mcp(["--env", "COLOUR=red", "--memory", "64m", "--timeout", "20s", "--max-output", "10"], way) as m:
        m.hello()
        r = m.tool("run_shell", command="echo $COLOUR; seq 100")
        assert r.structured["stdout"] == "red\n1\n2\n3\n" and "[stdout: the first 10 of 296 bytes were kept]" in r.text
        assert "64 MiB" in m.result("tools/list")["tools"][0]["description"]


def test_a_volume_reaches_every_run(tmp_path):
    """Without a service only: root's files are given to no sandbox of one by descriptor (docs/service.md)."""
    way = {"CLOCHE_DIRECT": "1"}
    (tmp_path / "data.txt").write_text("from outside")
    os.chmod(tmp_path, 0o755)
    with Mcp(["-v", f"{tmp_path}:/data:ro"], way) as m:
        m.hello()
        for _ in range(2):
            assert m.tool("run_shell", command="cat /data/data.txt").structured["stdout"] == "from outside"


def test_output_that_is_no_text(mcp):
    r = mcp.tool("run_python", code="import os; os.write(1, b'a\\xff\\0b')")
    assert base64.b64decode(r.structured["stdout"]) == b"a\xff\0b" and r.structured["encoding"] == "base64"
    assert r.text == "exit=0\nstdout:\na\ufffd\ufffdb\nstderr:"


def test_the_plain_text(way):
    with Mcp(["--text", "plain"], way) as m:
        m.hello()
        assert m.tool("run_python", code="pass").text == "(no output)"
        assert m.tool("run_python", code="print('  x  '); print()").text == "x"
        long = m.tool("run_python", code="print('ä' * 5000)").text
        assert long == "ä" * 4000 + "\n[cut: the first 4000 of 5000 characters]"
        assert m.tool("run_shell", command="echo a; echo b >&2; exit 4").text == "a\nb\n[The command ended with exit code 4.]"
    with Mcp(["--text", "plain", "--max-text", "3"], way) as m:
        m.hello()
        assert m.tool("run_python", code="print('abcdef')").text == "abc\n[cut: the first 3 of 6 characters]"


def test_what_comes_out_is_what_the_schema_says(kept):
    schemas = {t["name"]: t["outputSchema"] for t in kept.result("tools/list")["tools"]}
    calls = [("run_python", {"code": "print(1)"}), ("run_python", {"code": "import os; os.abort()"}),
             ("run_shell", {"command": "sleep 9", "timeout": 0.2}), ("write_file", {"path": "a/b", "content": "x"}),
             ("read_file", {"path": "a/b"}), ("list_files", {}), ("list_sandboxes", {}), ("reset", {}), ("reset", {})]
    for name, arguments in calls:
        jsonschema.Draft202012Validator(schemas[name]).validate(kept.tool(name, **arguments).structured)


def test_annotations_are_what_the_tools_do(mcp):
    notes = {t["name"]: t["annotations"] for t in mcp.result("tools/list")["tools"]}
    for name in ("read_file", "list_files", "list_sandboxes"):
        assert notes[name]["readOnlyHint"] and not notes[name]["destructiveHint"]
    for name in ("run_python", "run_node", "run_shell", "write_file", "reset"):
        assert not notes[name]["readOnlyHint"] and notes[name]["destructiveHint"]
    assert {name for name, n in notes.items() if n["openWorldHint"]} == {"install_packages"}
    assert "URLError" in mcp.tool("run_python", code="import urllib.request as u; u.urlopen('http://1.1.1.1', timeout=2)").text


@pytest.mark.needs("root")
def test_why_there_is_no_sandbox_is_for_the_operator():
    """Nobody has no ids for sandboxes of its own: the model is told in general words, and stderr why."""
    p = cloche.start(["mcp"], env={"CLOCHE_DIRECT": "1"}, uid=cloche.NOBODY)
    call = {"name": "run_python", "arguments": {"code": "1"}}
    lines = [{"method": "initialize", "params": {"protocolVersion": "2025-11-25"}}, {"method": "tools/call", "params": call}]
    for number, line in enumerate(lines):
        p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **line}).encode() + b"\n")
        p.stdin.flush()
        answer = json.loads(p.stdout.readline())
    r = outcome(answer["result"])
    _, log = p.communicate(timeout=10)
    assert r.is_error and r.text == "exit=125\nstdout:\nstderr:\n[The sandbox could not be started.]" and r.structured["retryable"], (r, log)
    assert log.startswith(b"cloche: create_failed: ") and log.count(b"\n") == 1, log
    assert not any(word in json.dumps(r.result) for word in ("subuid", "/etc", "nobody", "cgroup"))


# ------------------------------------------------------------------------------------------- plots and other files

WRITE = """
import base64
def put(name, data): open('/output/' + name, 'wb').write(data)
png = base64.b64decode('%s')
""" % base64.b64encode(PNG).decode()


def test_plots_are_shown_and_files_can_be_read(mcp):
    r = mcp.tool("run_python", code=WRITE + "put('plot.png', png); put('a b.csv', b'1,2\\n'); put('n\\xc3\\xa4me.svg', b'<svg/>');"
                                            "put('fake.png', b'no image'); put('bin', b'\\0\\1')")
    assert not r.is_error
    kinds = {}
    for c in r.content[1:]:
        kinds.setdefault(c["type"], []).append(c)
    assert [c["mimeType"] for c in kinds["image"]] == ["image/png"] and base64.b64decode(kinds["image"][0]["data"]) == PNG
    assert [(c["resource"]["mimeType"], c["resource"]["text"]) for c in kinds["resource"]] == [("image/svg+xml", "<svg/>")]
    links = {c["name"]: c for c in kinds["resource_link"]}
    assert set(links) == {"a b.csv", "fake.png", "bin"} and links["a b.csv"]["mimeType"] == "text/csv" and links["bin"]["size"] == 2
    assert "[file plot.png, " in r.text
    assert any(n["method"] == "notifications/resources/list_changed" for n in mcp.notes)
    listed = {x["name"]: x for x in mcp.result("resources/list")["resources"]}
    assert len(listed) == 5 and mcp.result("resources/templates/list") == {"resourceTemplates": []}
    read = mcp.result("resources/read", {"uri": links["a b.csv"]["uri"]})["contents"]
    assert read == [{"uri": links["a b.csv"]["uri"], "mimeType": "text/csv", "text": "1,2\n"}]
    for name, data in (("bin", b"\0\1"), ("plot.png", PNG)):
        (content,) = mcp.result("resources/read", {"uri": listed[name]["uri"]})["contents"]
        assert base64.b64decode(content["blob"]) == data
    assert r.structured["artifacts"][0]["uri"].startswith("cloche://runs/")


def test_what_is_shown_has_a_bound(mcp):
    r = mcp.tool("run_python", code=WRITE + "[put(f'{i:02}.png', png + b'x' * 10) for i in range(12)];"
                                            "put('large.png', png + b'x' * (4 << 20)); put('huge.bin', b'x' * (9 << 20))")
    kinds = [c["type"] for c in r.content]
    assert kinds.count("image") == 8 and kinds.count("resource_link") == 5, kinds
    row = {a["path"]: a for a in r.structured["artifacts"]}
    assert row["huge.bin"]["uri"] is None and row["huge.bin"]["bytes"] == 9 << 20 and row["large.png"]["uri"]
    for i in range(3):  # 300 files: the oldest can no longer be read, and what there is stays bounded
        mcp.tool("run_python", code=f"[open(f'/output/{i}-{{k}}', 'w').write('x') for k in range(100)]")
    assert len(mcp.result("resources/list")["resources"]) == 256


@pytest.mark.parametrize("uri", ["cloche://runs/run_0/artifacts/x", "file:///etc/passwd", "", "cloche://runs/../../v1/keys", "a" * 5000])
def test_resources_that_are_none(way, uri):
    with Mcp(env=way) as m:
        m.hello()
        e = m.error("resources/read", {"uri": uri})
        assert e["code"] == -32002 and e["data"]["uri"] == uri
        m.modern = True
        assert m.error("resources/read", {"uri": uri})["code"] == -32602


# ----------------------------------------------------------------------------------------------------------- files


def test_files_stay_in_the_sessions_sandbox(kept, service):
    assert kept.tool("read_file", path="x").is_error and kept.tool("list_sandboxes").structured["sandboxes"] == []
    wrote = kept.tool("write_file", path="src/main.py", content="print('hällo')\n")
    assert wrote.structured["path"] == "src/main.py" and wrote.structured["bytes"] == 16
    box = wrote.structured["sandbox"]
    assert kept.tool("run_python", code="exec(open('src/main.py').read())", sandbox="session").structured["stdout"] == "hällo\n"
    assert kept.tool("run_shell", command="ls", sandbox=box).structured["stdout"] == "src\n"
    assert kept.tool("run_shell", command="ls").structured["stdout"] == "", "a run without it is new"
    listed = kept.tool("list_files", path="/workspace/src")
    assert listed.structured["entries"] == [{"name": "main.py", "type": "file", "size": 16}] and listed.text == "main.py  16\n"
    assert kept.tool("list_files").text == "src/\n"
    assert [b["state"] for b in kept.tool("list_sandboxes").structured["sandboxes"]] == ["running"]
    assert kept.tool("reset").structured["ended"] == [box] and not alive(service)
    assert kept.tool("read_file", path="src/main.py").is_error
    assert kept.tool("write_file", path="x", content="").structured["sandbox"] != box


def test_read_file_in_pieces(kept):
    text = "".join(f"line {i} ä\n" for i in range(40000))
    kept.tool("write_file", path="long", content=text)
    got, offset = "", 0
    while True:
        r = kept.tool("read_file", path="long", offset=offset)
        got, offset = got + r.texts[0], offset + r.structured["bytes"]
        if not r.structured["truncated"]:
            break
        assert r.structured["bytes"] <= 262144 and f"of {len(text.encode())}" in r.texts[1]
    assert got == text
    assert kept.tool("read_file", path="long", offset=5, limit=4).texts == ["0 ä", f"[bytes 5 to 9 of {len(text.encode())}]"]
    assert kept.tool("read_file", path="long", offset=5, limit=3).texts[0] == "0 ", "no half characters"
    kept.tool("write_file", path="p.png", content=base64.b64encode(PNG).decode(), encoding="base64")
    (image,) = kept.tool("read_file", path="/workspace/p.png").content
    assert image["type"] == "image" and base64.b64decode(image["data"]) == PNG
    kept.tool("write_file", path="b", content=base64.b64encode(b"\0\xff").decode(), encoding="base64")
    r = kept.tool("read_file", path="b")
    assert base64.b64decode(r.text) == b"\0\xff" and r.structured["encoding"] == "base64"
    kept.tool("write_file", path="empty", content="")
    assert kept.tool("read_file", path="empty").structured["bytes"] == 0


@pytest.mark.parametrize("name, arguments, words", [
    ("read_file", {"path": "none"}, "No such file"), ("read_file", {"path": "/workspace"}, "folder"), ("read_file", {"path": "/proc/1/environ"}, "/proc"),
    ("read_file", {"path": "../../etc/shadow"}, ""), ("read_file", {"path": "/etc/shadow"}, ""), ("list_files", {"path": "/root"}, ""),
    ("write_file", {"path": "/usr/bin/x", "content": ""}, ""), ("write_file", {"path": "/etc/x", "content": ""}, ""),
    ("write_file", {"path": "x", "content": "???", "encoding": "base64"}, "base64"), ("write_file", {"path": "x", "content": "", "encoding": "x"}, "utf-8"),
    ("write_file", {"path": "", "content": ""}, "empty"), ("write_file", {"path": "a\0b", "content": ""}, "NUL"),
    ("write_file", {"content": ""}, "path"), ("write_file", {"path": "x" * 2000, "content": ""}, "1024"), ("read_file", {"path": "x", "offset": -1}, "whole number"),
    ("read_file", {"path": "x", "offset": 1.5}, "whole number"), ("run_python", {"code": "1", "sandbox": "sbx_" + 32 * "0"}, "no such sandbox"),
    ("run_python", {"code": "1", "sandbox": "../x"}, "no such sandbox"), ("reset", {"sandbox": "nope"}, "no such sandbox"),
])
def test_what_files_cannot_do(kept, name, arguments, words):
    kept.tool("write_file", path="here", content="x")
    r = kept.tool(name, **arguments)
    assert r.is_error and words.lower() in r.text.lower(), r.text
    assert not any(path in r.text for path in (str(cloche.TOP), "/run/", ".sock", "/var/lib")), r.text


def test_only_sandboxes_made_here_can_be_reached(kept, boxes):
    other = boxes()
    for name, arguments in (("read_file", {"path": "x"}), ("run_shell", {"command": "true"}), ("reset", {})):
        r = kept.tool(name, sandbox=other.id, **arguments)
        assert r.is_error and "no such sandbox" in r.text.lower()
    assert kept.tool("list_sandboxes").structured["sandboxes"] == []


def test_the_sessions_sandbox_is_made_once(kept, service):
    numbers = [kept.begin("tools/call", {"name": "write_file", "arguments": {"path": f"f{i}", "content": "x"}}) for i in range(8)]
    answers = {}
    while len(answers) < 8:
        message = kept.read()
        answers[message["id"]] = message["result"]["structuredContent"]["sandbox"]
    assert set(answers) == set(numbers) and len(set(answers.values())) == 1 and len(alive(service)) == 1
    assert len(kept.tool("list_files").structured["entries"]) == 8


def test_session_runs(served, service):
    with Mcp(["--session"], served) as m:
        m.hello()
        first = m.tool("run_python", code="open('n', 'w').write('5')")
        assert m.tool("run_shell", command="cat n").structured["stdout"] == "5"
        assert m.tool("read_file", path="n").text == "5" and len(alive(service)) == 1
        r = m.tool("run_python", code="import time; time.sleep(30)", timeout=0.3)
        assert r.structured["reason"] == "timeout" and r.structured["sandbox"] == first.structured["sandbox"]
        assert m.tool("run_shell", command="cat n").structured["stdout"] == "5", "it stays"
    until(lambda: not alive(service))


def test_a_kept_sandbox_that_has_ended_is_told(kept, service):
    box = kept.tool("write_file", path="x", content="1").structured["sandbox"]
    service.root.expect(200, "DELETE", f"/v1/sandboxes/{box}")
    r = kept.tool("read_file", path="x")
    assert r.is_error and "ended" in r.text
    again = kept.tool("write_file", path="x", content="2")
    assert again.structured["sandbox"] != box and kept.tool("read_file", path="x").text == "2"


def test_there_is_an_end_to_kept_sandboxes(served, service):
    with Mcp(env=served, modern=True) as m:
        made = [m.tool("write_file", path="x", content="") for _ in range(9)]
        assert [r.is_error for r in made] == [False] * 8 + [True] and "reset" in made[-1].text
    until(lambda: not alive(service))


@pytest.mark.parametrize("name", ["write_file", "read_file", "list_files", "install_packages", "list_sandboxes", "reset"])
def test_without_a_service_files_say_so(name):
    arguments = {"write_file": {"path": "x", "content": ""}, "read_file": {"path": "x"}, "install_packages": {"packages": ["six"]}}.get(name, {})
    with Mcp(env={"CLOCHE_DIRECT": "1"}) as m:
        m.hello()
        r = m.tool(name, **arguments)
        assert r.is_error and "service" in r.text


# ------------------------------------------------------------------------------------- progress, cancelling, ending


def test_progress_is_told_to_who_asks(mcp):
    r = mcp.tool("run_python", _meta={"progressToken": "tok"}, code="import time; time.sleep(2.3)")
    told = [n["params"] for n in mcp.notes if n["method"] == "notifications/progress"]
    assert not r.is_error and len(told) == 2 and all(t["progressToken"] == "tok" and t["total"] == 30 for t in told)
    assert 0 < told[0]["progress"] < told[1]["progress"] and "running" in told[0]["message"]
    mcp.notes.clear()
    mcp.tool("run_python", code="import time; time.sleep(1.2)")
    assert not [n for n in mcp.notes if n["method"] == "notifications/progress"]


@pytest.mark.parametrize("direct, in_kept", [(True, False), (False, False), (False, True)])
def test_cancelling_ends_the_run(served, direct, in_kept):
    way = {"CLOCHE_DIRECT": "1"} if direct else served
    word, command = sleeper()
    with Mcp(["--session"] if in_kept else [], way) as m:
        m.hello()
        number = m.begin("tools/call", {"name": "run_shell", "arguments": {"command": f"exec {command}"}})
        until(lambda: processes_with(word))
        m.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number, "reason": "no longer"}})
        until(lambda: not processes_with(word))
        assert m.quiet(), "a cancelled request is not answered"
        m.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        m.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "other"}})
        assert m.tool("run_python", code="print(1)").structured["ok"]


def test_cancelling_who_makes_the_sandbox_lets_the_others_go_on(kept):
    first = kept.begin("tools/call", {"name": "write_file", "arguments": {"path": "a", "content": "x"}})
    second = kept.begin("tools/call", {"name": "write_file", "arguments": {"path": "b", "content": "x"}})
    kept.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": first}})
    answer = kept.read()
    if answer["id"] == first:  # it was faster
        answer = kept.read()
    assert answer["id"] == second and not answer["result"]["isError"]


def ends(how, m):
    if how == "eof":
        m.process.stdin.close()
    elif how == "kill":
        m.process.kill()
    elif how == "term":
        m.process.terminate()
    elif how == "stdout":  # who reads goes away
        m.process.stdout.close()
    return m.process.wait(10)


@pytest.mark.parametrize("how, status", [("eof", 0), ("kill", -9), ("term", 0), ("stdout", 0)])
def test_nothing_outlives_the_server(way, service, how, status):
    word, command = sleeper()
    m = Mcp(env=way)
    m.hello()
    for _ in range(3):
        m.begin("tools/call", {"name": "run_shell", "arguments": {"command": f"{command} & exec {command}"}})
    if "CLOCHE_SOCKET" in way:
        m.begin("tools/call", {"name": "write_file", "arguments": {"path": "x", "content": "x"}})
        until(lambda: any(b["session"] for b in alive(service)))
    until(lambda: len(processes_with(word)) == 6)
    assert ends(how, m) == status
    until(lambda: not processes_with(word))
    until(lambda: not alive(service))
    left = [f for f in os.listdir("/tmp") if f.startswith("cloche-mcp.")]
    until(lambda: not [f for f in left if os.path.exists(f"/tmp/{f}")])


def test_killed_with_all_its_group(served, service):
    m = Mcp(env=served)
    m.hello()
    m.tool("write_file", path="x", content="x")
    assert alive(service)
    os.killpg(m.process.pid, signal.SIGKILL)
    m.process.wait(10)
    until(lambda: not alive(service))


def test_the_service_comes_and_goes():
    with services.Service() as one:
        with Mcp(env={"CLOCHE_SOCKET": one.sock}) as m:
            m.hello()
            m.tool("write_file", path="x", content="still here")
            number = m.begin("tools/call", {"name": "run_python", "arguments": {"code": "import time; time.sleep(3)"}})
            until(lambda: len(running(one)) == 1)
            one.process.terminate()
            one.process.wait(15)
            lost = outcome(m.end(number)["result"])
            assert lost.is_error and lost.text == "The result was lost.", lost.result
            r = m.tool("run_python", code="print(2)")
            assert r.is_error and r.text == "The sandbox service could not be reached."
            one.start()
            assert m.tool("run_python", code="print(3)").structured["stdout"] == "3\n"
            assert m.tool("read_file", path="x").text in ("still here", "The kept sandbox has ended; its files are gone.")
        until(lambda: not alive(one))
        until(lambda: not running(one))  # it was nobody's any more


def test_a_service_that_is_named_and_not_there(tmp_path):
    """The server starts all the same, nothing runs without it, and the model is told in general words."""
    env = {"CLOCHE_SOCKET": str(tmp_path / "none.sock")}
    with Mcp(env=env) as m:
        m.hello()
        for name, arguments in (("run_python", {"code": "1"}), ("list_files", {})):
            r = m.tool(name, **arguments)
            assert r.is_error and r.text == "The sandbox service could not be reached."
    r = tools("call", "run_python", '{"code": "1"}', env=env)
    assert r.returncode == 0 and r.stdout == b"The sandbox service could not be reached.\n" and b"none.sock" in r.stderr


# --------------------------------------------------------------------------------------------------- hostile clients

HOSTILE = [
    (b"{", None, -32700), (b"nonsense", None, -32700), (b"\xff\xfe", None, -32700), (b'{"a":1,"a":2}', None, -32700), (b"[", None, -32700),
    (b'"text"', None, -32700), (b"5", None, -32700), (b"null", None, -32700),
    (b"[]", None, -32600), (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None, -32600), (b"{}", None, -32600),
    (b'{"jsonrpc":"2.0"}', None, -32600), (b'{"jsonrpc":"2.0","id":7}', 7, -32600), (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 7, -32600),
    (b'{"id":7,"method":"ping"}', 7, -32600), (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600), (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None, -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, -32600), (b'{"jsonrpc":"2.0","id":"' + b"x" * 300 + b'","method":"ping"}', None, -32600),
    (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, -32600), (b'{"jsonrpc":"2.0","id":7,"method":"ping","extra":1}', 7, -32600),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}', 7, -32600), (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', 7, -32602),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}', 7, -32602), (b'{"jsonrpc":"2.0","id":7,"method":"nope"}', 7, -32601),
    (b'{"jsonrpc":"2.0","id":7,"method":"' + b"m" * 500 + b'"}', 7, -32600), (b'{"jsonrpc":"2.0","id":7,"method":"a\\u0000b"}', 7, -32600),
    (b'{"jsonrpc":"2.0","id":7,"method":"prompts/list"}', 7, -32601), (b'{"jsonrpc":"2.0","id":7,"method":"logging/setLevel"}', 7, -32601),
    (b'{"jsonrpc":"2.0","id":7,"method":"notifications/cancelled","params":{"requestId":1}}', 7, -32601),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"x"}}', 7, -32602),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}', 7, -32602), (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":5}}', 7, -32602),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"rm"}}', 7, -32602),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_python","arguments":[1]}}', 7, -32602),
    (b'{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{}}', 7, -32602),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b'{"a":' * 100 + b"1" + b"}" * 101, None, -32700),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":[' + b"1," * 150000 + b"1]}}", None, -32700),
]


@pytest.mark.parametrize("line, number, code", HOSTILE, ids=range(len(HOSTILE)))
def test_malformed_messages(mcp, line, number, code):
    mcp.raw(line + b"\n")
    answer = mcp.read()
    assert answer["id"] == number and answer["error"]["code"] == code and set(answer) == {"jsonrpc", "id", "error"}, answer
    assert len(json.dumps(answer)) < 1000
    assert mcp.result("ping") == {}


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b'{"jsonrpc":"2.0","method":"nope"}', b'{"jsonrpc":"2.0","method":"ping","params":[1]}',
                                  b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"x"}}',
                                  b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"run_python"}}',
                                  b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}'])
def test_what_is_not_answered(mcp, line):
    mcp.raw(line + b"\n")
    assert mcp.result("ping") == {}


@pytest.mark.parametrize("arguments, words", [
    ({}, '"code"'), ({"code": None}, '"code"'), ({"code": ["x"]}, "string"), ({"code": 1}, "string"), ({"code": "1", "cod": "2"}, "no argument"),
    ({"code": "1", "timeout": "5"}, "number"), ({"code": "1", "timeout": 0}, "more than 0"), ({"code": "1", "timeout": -5}, "more than 0"),
    ({"code": "x" * (3 << 20)}, "2097152"), ({"code": "a\0"}, "NUL"),
])
def test_wrong_arguments_are_told_to_the_model(mcp, arguments, words):
    r = mcp.tool("run_python", **arguments)
    assert r.is_error and words in r.text and r.structured is None


def test_arguments_that_are_unusual_but_right(mcp):
    assert mcp.tool("run_python", code="print(1)", timeout=None).structured["ok"]
    assert mcp.tool("run_python", code="").structured["ok"]
    assert mcp.tool("run_python", code="print('\\U0001f600')").structured["stdout"] == "\U0001f600\n"
    assert not mcp.ask("tools/call", {"name": "run_shell", "arguments": {"command": "true"}, "task": {}})["result"]["isError"]


def test_batches_belong_to_one_revision(way):
    with Mcp(env=way) as m:
        m.hello("2025-03-26")
        m.send([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/initialized"},
                {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "print(1)"}}},
                {"jsonrpc": "2.0", "id": "c", "method": "nope"}, 5, {"jsonrpc": "2.0", "id": "d", "method": "initialize", "params": {"protocolVersion": "x"}}])
        answers = m.read()
        assert sorted(str(a["id"]) for a in answers) == ["None", "a", "b", "c", "d"]
        assert {a["id"]: a["error"]["code"] for a in answers if "error" in a} == {"c": -32601, None: -32600, "d": -32600}
        m.send([{"jsonrpc": "2.0", "method": "notifications/initialized"}])
        assert m.quiet(0.1)
        word, command = sleeper()
        m.send([{"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "run_shell", "arguments": {"command": command}}},
                {"jsonrpc": "2.0", "id": "y", "method": "ping"}])
        until(lambda: processes_with(word))
        m.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}})
        assert [a["id"] for a in m.read()] == ["y"]
        for bad in ([], [{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * 65):
            m.send(bad)
            assert m.read()["error"]["code"] == -32600


def test_an_id_that_is_under_way(mcp):
    call = {"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "import time; time.sleep(0.5)"}}}
    mcp.send(call)
    mcp.send(call)
    mcp.send({"jsonrpc": "2.0", "id": "same", "method": "ping"})
    for _ in range(2):
        answer = mcp.read()
        assert answer["id"] is None and answer["error"]["code"] == -32600
    assert mcp.read()["id"] == "same" and mcp.quiet()


def test_too_many_at_a_time(mcp):
    """16 run, the others are refused at once; numbers and texts are different ids."""
    for i in range(10):
        for number in (i, str(i)):
            mcp.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "run_shell", "arguments": {"command": "sleep 1"}}})
    answers = [mcp.read(30) for _ in range(20)]
    assert sum("error" in a for a in answers) == 4 and all(a["error"]["code"] == -32603 for a in answers if "error" in a)
    assert len({(type(a["id"]), a["id"]) for a in answers}) == 20
    assert all(not a["result"]["isError"] for a in answers if "result" in a), answers


def test_a_message_that_is_too_long(mcp):
    for _ in range(3):
        for _ in range(20):
            mcp.raw(b"x" * (1 << 20))
        mcp.raw(b"\n")
        answer = mcp.read()
        assert answer["id"] is None and answer["error"]["code"] == -32600
    assert mcp.result("ping") == {} and mcp.memory() < 64 << 20


def test_a_flood_that_nobody_reads(way):
    """Answers are not taken: the server stops reading, its memory has an end, and it goes on when they are."""
    with Mcp(env=way) as m:
        m.hello()
        os.set_blocking(m.process.stdin.fileno(), False)
        line, sent, stuck = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n' * 1000, 0, time.monotonic()
        while sent < 64 << 20 and time.monotonic() - stuck < 1.5:
            try:
                n = os.write(m.process.stdin.fileno(), line[sent % len(line):])
                sent, stuck = sent + n, time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert sent < 16 << 20, "it would have read on without end"
        assert m.memory() < 128 << 20
        os.set_blocking(m.process.stdin.fileno(), True)
        for _ in range(sent // (len(line) // 1000)):
            assert m.read()["id"] == 1


def test_a_flood_and_then_nothing(way):
    """Who does not read answers and closes stdin has gone."""
    m = Mcp(env=way)
    m.hello()
    os.set_blocking(m.process.stdin.fileno(), False)
    line, stuck = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n' * 1000, time.monotonic()
    while time.monotonic() - stuck < 1:
        try:
            os.write(m.process.stdin.fileno(), line)
            stuck = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    m.process.stdin.close()
    assert m.process.wait(5) == 0
    m.process.stdout.close()
    m.process.stderr.close()


def test_messages_in_pieces_and_together(mcp):
    one = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n'
    for byte in one % 1:
        mcp.raw(bytes([byte]))
    assert mcp.read()["id"] == 1
    mcp.raw(b"".join(one % i for i in range(500)))
    assert [mcp.read()["id"] for _ in range(500)] == list(range(500))
    mcp.raw((one % 7).replace(b"\n", b"\r\n"))
    assert mcp.read()["id"] == 7


# ------------------------------------------------------------------------------------------------------ cloche tools


def tools(*args, env=None, stdin=b""):
    return cloche.run(["tools", *args], json=False, env=env, stdin=stdin)


@pytest.mark.parametrize("form, where", [
    ("openai", lambda t: (t["function"]["name"], t["function"]["parameters"])), ("openai-responses", lambda t: (t["name"], t["parameters"])),
    ("anthropic", lambda t: (t["name"], t["input_schema"])), ("gemini", None), ("mcp", None)])
def test_formats(form, where):
    listed = json.loads(tools("--format", form).stdout)
    if form == "gemini":
        listed, where = listed[0]["functionDeclarations"], lambda t: (t["name"], t["parameters"])
    if form == "mcp":
        listed, where = listed["tools"], lambda t: (t["name"], t["inputSchema"])
    names = [where(t)[0] for t in listed]
    assert names == ["run_python", "run_node", "run_shell"] + (["write_file", "read_file", "list_files", "install_packages", "list_sandboxes", "reset"] if form == "mcp" else
                                                              [])
    for t in listed:
        schema = where(t)[1]
        assert schema["type"].lower() == "object" and set(schema["required"]) <= set(schema["properties"])
        if form == "gemini":
            assert "additionalProperties" not in schema and schema["properties"]["timeout"]["type"] == "NUMBER"
        else:
            jsonschema.Draft202012Validator.check_schema(schema)
    (one,) = json.loads(tools("--format", "openai", "--name", "execute_python").stdout)
    assert one["function"]["name"] == "execute_python" and one["function"]["parameters"]["required"] == ["code"]


def test_a_call_is_answered_with_one_string(way):
    assert tools("call", "run_python", '{"code": "print(6 * 7)"}', env=way).stdout == b"exit=0\nstdout:\n42\nstderr:\n"
    assert tools("call", "run_python", "-", env=way, stdin=b'{"code": "print(6 * 7)"}').stdout == b"exit=0\nstdout:\n42\nstderr:\n"
    assert tools("call", "execute_python", "--name", "execute_python", "--text", "plain", env=way, stdin=b'{"code": "print(6 * 7)"}').stdout == b"42\n"
    r = tools("call", "run_shell", '{"command": "exit 3"}', "--text", "plain", env=way)
    assert r.returncode == 0 and r.stdout == b"(no output)\n[The command ended with exit code 3.]\n"
    beside = json.loads(tools("call", "run_python", '{"code": "1/0"}', "--json", env=way).stdout)
    assert beside["is_error"] and beside["text"].startswith("exit=1\n") and beside["result"]["enforced"]["runtime"] == "native"
    assert beside["result"]["exit_code"] == 1 and "ZeroDivisionError" in beside["result"]["stderr"]


@pytest.mark.parametrize("args, words", [
    (["run_python", "{bad"], b"JSON"), (["run_python", "[]"], b"object"), (["run_python", "{}"], b'"code"'), (["nope", "{}"], b"no such tool"),
    (["run_python", '{"code": 5}'], b"string"), (["read_file", '{"path": "x"}'], b"no such tool"), (["run_python", ""], b"JSON"),
    (["run_python", "[" * 100], b"nested"),
])
def test_broken_calls_are_answered_with_a_string_too(args, words):
    r = tools("call", *args)
    assert r.returncode == 0 and words in r.stdout and r.stdout.endswith(b"\n"), r
    beside = json.loads(tools("call", *args, "--json").stdout)
    assert beside["is_error"] and beside["result"] is None


@pytest.mark.parametrize("args", [["--format", "x"], ["nope"], ["read_file"], ["--name", "x", "run_python", "run_node"], ["call"], ["--text", "x"],
                                  ["call", "a", "b", "c"], ["--max-text", "0"], ["--max-output", "2m"], ["--name", "not a name"]])
def test_wrong_usage(args):
    r = tools(*args)
    assert r.returncode == 2 and r.stdout == b"" and r.stderr.startswith(b"cloche: "), r


def test_a_call_can_be_interrupted(way):
    word, command = sleeper()
    p = cloche.start(["tools", "call", "run_shell", json.dumps({"command": command})], env=way, stdin=subprocess.DEVNULL)
    until(lambda: processes_with(word))
    p.send_signal(signal.SIGINT)
    assert p.wait(10) == 130
    until(lambda: not processes_with(word))
    p.communicate()
