# SPDX-License-Identifier: Apache-2.0
"""The command line against a service that lies, breaks off, floods or sends what a sandbox wrote to harm the host.

What the real service never does needs a stand-in (standin.py); what it does is in test_cli_service.py.
"""
import fcntl
import base64
import io
import json
import os
import pty
import resource
import select
import signal
import subprocess
import tarfile
import termios
import time

import cloche
import pytest
from standin import BOX, HANG_UP, SANDBOX, Standin, chunk, exited, head, problem, reply, result, stream

STAT_FILE = reply({"path": "/workspace/f", "type": "file", "size": 1})
STAT_FOLDER = reply({"path": "/workspace/d", "type": "directory", "size": 0})


def ls(answer, *args):
    with Standin({"GET /v1/sandboxes": answer}) as s:
        return s.run(["ls", *args])


def failed(r, *words):
    assert r.returncode == 125, r
    assert r.stderr.startswith(b"cloche: ") and r.stderr.count(b"\n") == 1, r
    assert b"\x1b" not in r.stderr, r
    for word in words:
        assert word in r.stderr.decode(), r


# ------------------------------------------------------------------------------------------------- broken HTTP

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("answer, word", [
    ([HANG_UP], "hung up without an answer"),
    ([b"HTTP/1.1 200", HANG_UP], "hung up without an answer"),
    ([OK + b"Content-Length: 10\r\n\r\n{}", HANG_UP], "in the middle of its answer"),
    ([head() + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"{}"), HANG_UP], "in the middle of its answer"),
    (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not HTTP/1.1"),
    (b"HTTP/1.1 200 \x1b]0;evil\x07\r\n\r\n", "control character"),
    (OK + b"\r\n{}", "no length"),
    (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "two lengths"),
    (OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", "two kinds of length"),
    (OK + b"Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n", "more than one answer"),
    (reply(b"nonsense"), "JSON"),
    (reply(b""), ""),
    (reply(b'{"a":1,"a":2}'), "duplicate"),
    (reply(b'{"sandboxes":' + b"[" * 40 + b"]" * 40 + b"}"), "deeper"),
    (reply(b"{}", 302), "status 302"),
    (reply(b"<html>", 500, "text/html"), "status 500"),
    (reply(b"\xff", 500, "application/problem+json"), "status 500"),
    (problem(503, "try \x1b[2J later\nsoon"), "try \\x1b[2J later\\x0asoon"),
    (problem(404, "x" * 5000), "x..."),
])
def test_answers_that_are_none(answer, word):
    r = ls(answer, "--json")
    if word:
        failed(r, word)
    else:
        assert r.returncode == 0 and r.stdout == b"\n"


def limited(megabytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def endless(first, piece):
    yield first
    while True:
        yield piece


@pytest.mark.parametrize("first, piece, word", [
    (OK, b"A: " + b"b" * 1000 + b"\r\n", "header is too long"),
    (OK, b"x" * 65536, "header is too long"),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n", chunk(b" " * 65536), "longer than 16777216 bytes"),
    (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "too many"),
])
def test_endless_answers_end(first, piece, word):
    """In bounded memory: the whole program may have 64 MB."""
    limit = None if "asan" in cloche.binary() else limited(64)  # the sanitizer's shadow alone is terabytes
    with Standin({"GET /v1/sandboxes": lambda _: endless(first, piece)}) as s:
        done = subprocess.run([cloche.binary(), "ls"], env=cloche.environment(s.environment()), capture_output=True,
                              timeout=30, preexec_fn=limit)
    assert done.returncode == 125 and word in done.stderr.decode(), done


def test_an_endless_line_ends():
    routes = {f"POST {BOX}/exec": lambda _: endless(head(200, "application/x-ndjson", "Transfer-Encoding: chunked") +
                                                   b"\r\n", chunk(b"x" * 65536))}
    with Standin(routes) as s:
        failed(s.run(["exec", SANDBOX, "true"]), "longer than 16777216 bytes")


def test_pages_without_end():
    page = {"sandboxes": [{"id": "sbx_1", "state": "running"}], "next": "sbx_1"}
    r = ls(reply(page))
    failed(r, "next page is none")
    failed(ls(reply({**page, "next": "x&state=ended"})), "next page is none")


def test_cells_are_escaped_and_types_confused():
    box = {"id": "sbx_\u009b2J\x1b[31m", "state": ["running"], "created_at": 7, "expires_at": "2026-13-45T99:99:99Z",
           "limits": [], "usage": {"memory_bytes": "many"}, "image": "a\nb\tc", "labels": {"k\x1b": "v\x07", "n": 1}}
    r = ls(reply({"sandboxes": [box, 7, None, "x"], "next": None}))
    assert r.returncode == 0 and b"\x1b" not in r.stdout and b"\xc2\x9b" not in r.stdout
    assert b"sbx_\\xc2\\x9b2J\\x1b[31m" in r.stdout and b"a b c" in r.stdout and b"k\\x1b=v\\x07" in r.stdout
    assert len(r.stdout.splitlines()) == 5


# ---------------------------------------------------------------------------------------------- which service


def test_no_service_names_what_was_tried(tmp_path):
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    r = cloche.run(["ls"], json=False, env=env, uid=cloche.NOBODY if os.geteuid() == 0 else None)
    if os.path.exists("/run/cloche/cloche.sock"):
        pytest.skip("a service runs on this machine")
    failed(r, f"{tmp_path}/cloche/cloche.sock", "/run/cloche/cloche.sock", "`cloche serve` starts one")


@pytest.mark.parametrize("where, word", [
    ("/nonexistent/s", "No such file"), ("./s", "No such file"), ("127.0.0.1:1", "refused"),
    ("http://127.0.0.1:1/", "refused"), ("https://127.0.0.1", "no TLS"), ("host:", "give a path"), (":1", "give a path"),
    ("a b:1", "not a host name"), ("localhost:99999999", "give a path"), ("http://u@h:1", "not a host name"),
    ("/" + "x" * 200, "longer than"),
])
def test_cloche_socket_that_leads_nowhere(where, word):
    failed(cloche.run(["ls"], json=False, env={"CLOCHE_SOCKET": where}), word)


def test_tcp_sends_host_and_key():
    with Standin({"GET /v1/sandboxes": reply({"sandboxes": [], "next": None})}, tcp=True) as s:
        for name in (s.name, f"http://{s.name}", f"http://{s.name}/"):
            r = s.run(["ls"], env={"CLOCHE_API_KEY": "clk_secret", "CLOCHE_SOCKET": name})
            assert r.returncode == 0, r
        assert [(q.fields["host"], q.fields["authorization"]) for q in s.requests] == [(s.name, "Bearer clk_secret")] * 3
        failed(s.run(["ls"], env={"CLOCHE_API_KEY": "a\r\nX: y"}), "not a key")


def test_the_key_does_not_go_to_a_unix_socket():
    with Standin({"GET /v1/sandboxes": reply({"sandboxes": [], "next": None})}) as s:
        assert s.run(["ls"], env={"CLOCHE_API_KEY": "clk_secret"}).returncode == 0
        assert "authorization" not in s.requests[0].fields


@pytest.mark.needs("root")
def test_a_socket_of_another_user_is_not_trusted(tmp_path):
    """Without XDG_RUNTIME_DIR the user's socket lies in /tmp, where anybody could have put it first."""
    uid = 61234
    folder = f"/tmp/cloche-{uid}"
    os.mkdir(folder)
    try:
        os.chmod(folder, 0o777)
        code = (f"import os, socket, time; os.setuid(61235); s = socket.socket(socket.AF_UNIX)\n"
                f"s.bind('{folder}/cloche.sock'); os.chmod('{folder}/cloche.sock', 0o777); s.listen(); print(flush=True)\n"
                f"time.sleep(30)")
        p = subprocess.Popen(["/usr/bin/python3", "-c", code], stdout=subprocess.PIPE)
        p.stdout.readline()
        r = cloche.run(["ls"], json=False, env={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": ""}, uid=uid)
        p.kill()
        p.communicate()
        failed(r, f"{folder}/cloche.sock (Operation not permitted)")
    finally:
        for f in os.listdir(folder):
            os.unlink(os.path.join(folder, f))
        os.rmdir(folder)


# ------------------------------------------------------------------------------------------------------- ids

EVIL_IDS = ["", "../v1/keys", "a/b", "a?b", "a b", "a%2fb", "a\r\nX: y", "\x1b[2J", "x" * 65, "a\u00e9"]


@pytest.mark.parametrize("args", [["kill"], ["pause"], ["resume"], ["ps"], ["logs"], ["exec", "--"],
                                  ["renew", "--timeout", "1h"]])
def test_ids_that_are_none_are_not_sent(args):
    with Standin({}) as s:
        for name in EVIL_IDS:
            r = s.run([*args, name, *(["true"] if args[0] == "exec" else [])])
            failed(r, "not the id of a sandbox")
        assert s.requests == []


def test_ids_of_the_service_are_not_believed():
    routes = {f"POST {BOX}/processes": reply({"id": "../../keys"}, 201), "POST /v1/sandboxes": reply({"id": "a\x1b"}, 201),
              "POST /v1/keys": reply({"id": "key_1", "secret": "clk_\x1b[2J"}, 201)}
    with Standin(routes) as s:
        failed(s.run(["exec", "-i", SANDBOX, "true"]), "no id")
        failed(s.run(["create"]), "no id")
        failed(s.run(["key", "create", "x"]), "no key")
        assert len(s.requests) == 3


# ------------------------------------------------------------------------------------------------------ exec


def exec_(*events, args=(), **kw):
    with Standin({f"POST {BOX}/exec": stream(*events, **kw)}) as s:
        return s.run(["exec", *args, SANDBOX, "true"])


def out(data, name="stdout", **more):
    return {"type": name, "t": 0.1, "data": base64.b64encode(data).decode(), "encoding": "base64", **more}


def test_bytes_are_exact():
    data = bytes(range(256)) * 300
    r = exec_({"type": "started", "id": "run_1"}, out(data), {"type": "stderr", "data": "e\u0000\u00e9", "encoding": "utf-8"},
              {"type": "news"}, exited(exit_code=3))
    assert (r.stdout, r.stderr, r.returncode) == (data, b"e\0\xc3\xa9", 3)


@pytest.mark.parametrize("end, status, word", [
    (exited("timeout", None), 124, "timeout"), (exited("oom", None), 137, "oom"), (exited("killed", None), 137, "killed"),
    (exited("cancelled", None), 130, "cancelled"), (exited("lost", None), 125, "lost"),
    (exited("signaled", None, signal=11), 139, "signaled"), (exited("idle_timeout", None), 124, "idle_timeout"),
    (exited("create_failed", None, stage="exec", message="exec /x: No such file or directory"), 127, "/x"),
    (exited("create_failed", None, stage="exec", message="exec /x: Permission denied"), 126, "/x"),
    (exited("create_failed", None, stage="mounts", message="mount: No such file or directory"), 125, "mount"),
    (exited("made up", 0), 125, "made up"), ({"type": "exited"}, 125, "ends without a result"),
    ({"type": "exited", "result": "ok"}, 125, "ends without a result"),
])
def test_ends(end, status, word):
    r = exec_(out(b"x"), end)
    assert r.returncode == status and r.stdout == b"x" and word in r.stderr.decode(), r


@pytest.mark.parametrize("events, word", [
    ([out(b"x"), b""], "ends without a result"),
    ([{**out(b"x"), "data": "eA="}], "Invalid argument"), ([{**out(b"x"), "data": "e A="}], "Invalid argument"),
    ([{**out(b"x"), "encoding": "rot13"}], "Invalid argument"), ([{"type": "stdout"}], "no data"),
    ([b"[]\n"], "no JSON object"), ([b'{"type":"stdout"'], "ends without a result"),
    ([b"\n"], "JSON"), ([exited(), out(b"more")], None),
])
def test_events_that_are_wrong(events, word):
    r = exec_(*events)
    if word is None:  # the result counts, whatever follows
        assert r.returncode == 0 and r.stdout == b"", r
    else:
        assert r.returncode == 125 and word in r.stderr.decode(), r


def test_a_cut_stream_is_no_success():
    failed(exec_(out(b""), end=False), "in the middle")


def test_truncation_is_remarked():
    counts = {"stdout": {"bytes": 9, "kept": 0, "dropped": 9}, "stderr": {"bytes": 0, "kept": 0, "dropped": 0}}
    assert exec_(out(b"four"), exited(output=counts)).stderr == b"cloche: stdout truncated: kept 4 of 9 bytes\n"
    assert exec_(out(b"four"), exited(output=counts), args=["-q"]).stderr == b""
    assert exec_(out(b"and nine!"), exited(output=counts)).stderr == b""


def test_collected_result_is_printed_unchanged():
    text = b'{"reason":  "exited", "exit_code":4,"stdout":"a\\u0000\\u001b", "unknown":[1.50]}'
    with Standin({f"POST {BOX}/exec": reply(text)}) as s:
        r = s.run(["exec", "--json", SANDBOX, "--", "sh", "-c", "x"])
        assert (r.stdout, r.returncode) == (text + b"\n", 4)
        assert s.requests[0].json == {"command": ["sh", "-c", "x"]} and s.requests[0].query == ""


def test_what_exec_asks_for(tmp_path):
    (tmp_path / "f.py").write_text("print(1)\r\n")
    with Standin({f"POST {BOX}/exec": stream(exited())}) as s:
        env = {"CLOCHE_TIMEOUT": "7s", "PASSED": "p=q"}
        for args in (["-e", "A=b=c", "-e", "PASSED", "-w", "/tmp", SANDBOX, "--timeout=3s", "--", "-x"],
                     ["--language", "python", SANDBOX, "-c", "print(2)", "-v", "--", "x"],
                     [SANDBOX, "--language=python", tmp_path / "f.py", "a"]):
            assert s.run(["exec", *args], env=env).returncode == 0
        assert s.run(["exec", SANDBOX, "--language", "bash", "-"], stdin="echo é", env=env).returncode == 0
        assert [q.json for q in s.requests] == [
            {"command": ["-x"], "env": {"A": "b=c", "PASSED": "p=q"}, "workdir": "/tmp", "timeout": "3s"},
            {"language": "python", "code": "print(2)", "args": ["-v", "--", "x"], "timeout": "7s"},
            {"language": "python", "code": "print(1)\r\n", "args": ["a"], "timeout": "7s"},
            {"language": "bash", "code": "echo é", "timeout": "7s"}]
        assert all(q.query == "stream" for q in s.requests)


@pytest.mark.parametrize("args, words", [
    ([], ["usage"]), ([SANDBOX], ["no command"]), ([SANDBOX, "--bogus", "x"], ["unknown option --bogus"]),
    ([SANDBOX, "--memory", "1g", "x"], ["unknown option --memory"]), ([SANDBOX, "-c", "x"], ["-c needs --language"]),
    ([SANDBOX, "-i", "--json", "x"], ["--json"]), ([SANDBOX, "--timeout", "0", "x"], ["--timeout"]),
    ([SANDBOX, "--language", "python", "/no/such/file"], ["No such file"]),
])
def test_exec_is_asked_wrongly(args, words):
    with Standin({}) as s:
        r = s.run(["exec", *args], stdin=None)
        assert r.returncode in (2, 125) and all(w in r.stderr.decode() for w in words), r
        assert s.requests == []


def test_interrupted_exec_hangs_up():
    gone = []

    def answer(_):
        yield from stream(out(b"ready\n"), end=False)[:-1]
        for _ in range(200):
            time.sleep(0.02)
            try:
                yield chunk(b"{}\n")
            except GeneratorExit:
                gone.append(True)
                raise

    with Standin({f"POST {BOX}/exec": answer}) as s:
        p = cloche.start(["exec", SANDBOX, "x"], env=s.environment())
        assert p.stdout.readline() == b"ready\n"
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == 130
        p.communicate()


# ----------------------------------------------------------------------------------------- background processes

PROCESS = f"{BOX}/processes/prc_1"


def process_routes(output, **more):
    return {f"POST {BOX}/processes": reply({"id": "prc_1", "running": True}, 201), f"GET {PROCESS}/output": output,
            f"DELETE {PROCESS}": reply({}), f"POST {PROCESS}/stdin": reply({}), f"POST {PROCESS}/resize": reply({}), **more}


def test_stdin_goes_in_order_and_ends():
    data = os.urandom(300_000)

    def output(_):
        while not any(q.query == "eof" for q in s.requests):
            time.sleep(0.01)
        return stream({**out(b"done"), "offset": 0}, {"type": "exited", "exit_code": 5})

    with Standin(process_routes(output)) as s:
        r = s.run(["exec", "-i", SANDBOX, "cat"], stdin=data)
        assert (r.returncode, r.stdout, r.stderr) == (5, b"done", b"")
        inputs = [q for q in s.requests if q.path.endswith("/stdin")]
        assert b"".join(q.body for q in inputs) == data
        assert [q.query for q in inputs] == [""] * (len(inputs) - 1) + ["eof"]
        assert s.requests[0].json == {"command": ["cat"], "stdin": True}
        assert s.paths()[-1] == f"DELETE {PROCESS}"


def test_a_cut_output_is_taken_up_where_it_was():
    pieces = [[{**out(b"one,"), "offset": 0}, {**out(b"E", "stderr"), "offset": 0}], [{**out(b"two,"), "offset": 4}],
              [{**out(b"five"), "offset": 10}, {"type": "exited", "result": result()}]]
    turn = iter(pieces)
    with Standin(process_routes(lambda _: stream(*(p := next(turn)), end=p is pieces[-1]))) as s:
        r = s.run(["exec", "-i", SANDBOX, "x"], stdin=b"")
        assert (r.returncode, r.stdout) == (0, b"one,two,five")
        assert r.stderr == b"Ecloche: 2 bytes of stdout were written faster than read: lost\n"
        assert [q.query for q in s.requests if q.path.endswith("/output")] == [
            "stdout=0&stderr=0&follow", "stdout=4&stderr=1&follow", "stdout=8&stderr=1&follow"]


def test_an_output_that_is_always_cut_ends():
    with Standin(process_routes([HANG_UP], **{f"GET {PROCESS}": reply({"running": True})})) as s:
        failed(s.run(["exec", "-i", SANDBOX, "x"], stdin=b""), "hung up")
        assert len([q for q in s.requests if q.path.endswith("/output")]) < 10


def test_an_output_that_goes_backwards_is_refused():
    events = [{**out(b"abc"), "offset": 0}, {**out(b"x"), "offset": 1}]
    with Standin(process_routes(stream(*events))) as s:
        r = s.run(["exec", "-i", SANDBOX, "x"], stdin=b"")
        assert r.returncode == 125 and b"out of order" in r.stderr, r


def test_an_end_that_only_the_process_tells():
    routes = process_routes(stream({**out(b"x"), "offset": 0}),
                            **{f"GET {PROCESS}": reply({"running": False, "exit_code": None, "signal": 15})})
    with Standin(routes) as s:
        assert s.run(["exec", "-i", SANDBOX, "x"], stdin=b"").returncode == 128 + 15


@pytest.mark.parametrize("status, running, error", [(409, True, b""), (404, True, b""), (502, False, b""),
                                                    (502, True, b"cloche: stdin went wrong\n")])
def test_a_process_that_does_not_read_is_no_error(status, running, error):
    """It may end while its input is under way; input that got lost before a living process is an error."""
    def output(_):
        while not has(s, "GET /v1/sandboxes") and not any(q.path == PROCESS or q.path.endswith("/stdin") for q in s.requests):
            time.sleep(0.01)
        time.sleep(0.1)
        return stream({"type": "exited", "exit_code": 0})

    more = {f"POST {PROCESS}/stdin": problem(status, "stdin went wrong"), f"GET {PROCESS}": reply({"running": running})}
    with Standin(process_routes(output, **more)) as s:
        r = s.run(["exec", "-i", SANDBOX, "x"], stdin=b"x" * 100000)
        assert (r.returncode, r.stderr) == (125 if error else 0, error)


def on_terminal(s, args, act, wait_for=b"ready"):
    """(status, all that the terminal got, its settings before and after). act(pid, terminal) once wait_for is there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(cloche.binary(), [cloche.binary(), *args], cloche.environment(s.environment(TERM="xterm")))
    before, got, acted = termios.tcgetattr(terminal), b"", False
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                got += os.read(terminal, 65536) or b""
            except OSError:
                break
        if wait_for in got and not acted:
            acted = True
            act(pid, terminal)
    after = termios.tcgetattr(terminal)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), got, before, after


def terminal_session(condition, *last):
    def output(_):
        yield from stream({**out(b"ready\x1b[1m"), "offset": 0}, end=False)[:-1]
        while not condition():
            time.sleep(0.01)
        yield from stream(*last)[1:]
    return output


def has(s, text):
    return any(text in q.target + q.body.decode("latin-1") for q in s.requests)


def test_terminal_is_raw_meanwhile_and_put_back():
    """Ctrl-C and Ctrl-D go through as bytes, escapes come through, a new size is passed on."""
    modes = []

    def act(pid, terminal):
        modes.append(termios.tcgetattr(terminal)[3])
        os.write(terminal, b"\x03\x04\x1a")
        import fcntl
        import struct
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))

    routes = process_routes(terminal_session(lambda: has(s, "\x03\x04\x1a") and has(s, '"rows":33'),
                                             {"type": "exited", "exit_code": 9}))
    with Standin(routes) as s:
        status, got, before, after = on_terminal(s, ["exec", "-it", SANDBOX, "bash"], act)
        assert status == 9 and b"ready\x1b[1m" in got
        assert not modes[0] & (termios.ICANON | termios.ISIG | termios.ECHO)
        assert before == after and after[3] & termios.ICANON
        assert s.requests[0].json == {"command": ["bash"], "stdin": True, "tty": True, "env": {"TERM": "xterm"}} or \
            s.requests[0].json["tty"]
        resized = [q for q in s.requests if q.path.endswith("/resize")]
        assert resized[-1].json == {"rows": 33, "columns": 77}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_terminal_is_put_back_when_we_are_ended(number):
    with Standin(process_routes(terminal_session(lambda: has(s, "DELETE") or len(s.requests) > 50))) as s:
        status, _, before, after = on_terminal(s, ["exec", "-it", SANDBOX, "bash"], lambda pid, t: os.kill(pid, number))
        assert status == 130 and before == after
        assert f"DELETE {PROCESS}" in s.paths()


def test_terminal_is_put_back_when_the_service_talks_nonsense():
    def output(_):
        yield from stream({**out(b"ready"), "offset": 0}, end=False)[:-1]
        yield chunk(b"nonsense\n")
        yield HANG_UP

    with Standin(process_routes(output)) as s:
        status, got, before, after = on_terminal(s, ["exec", "-it", SANDBOX, "bash"], lambda *_: None)
        assert status == 125 and before == after and b"cloche: " in got


def test_without_a_terminal_of_its_own_output_is_escaped():
    with Standin({f"POST {BOX}/exec": stream(out(b"\x1b]0;t\x07\xc3"), out(b"\xa9\x9b"), exited())}) as s:
        _, got, _, _ = on_terminal(s, ["exec", SANDBOX, "x"], lambda *_: None)
        assert got == b"\\x1b]0;t\\x07\xc3\xa9\\x9b"
        _, got, _, _ = on_terminal(s, ["exec", "--raw", SANDBOX, "x"], lambda *_: None)
        assert got == b"\x1b]0;t\x07\xc3\xa9\x9b"


# -------------------------------------------------------------------------------------------------------- logs


def test_logs_of_all_and_of_one():
    routes = {f"GET {BOX}/processes": reply({"processes": [{"id": "prc_1"}, {"id": "prc_2"}]}),
              f"GET {BOX}/processes/prc_1/output": stream({**out(b"a\n"), "offset": 0}, {"type": "exited"}),
              f"GET {BOX}/processes/prc_2/output": stream({**out(b"b\n"), "offset": 10}),
              "GET /v1/sandboxes": reply({"sandboxes": [{"id": "sbx_x"}, {"id": SANDBOX}], "next": None}),
              f"GET {BOX}/processes/prc_2": reply({"id": "prc_2"})}
    with Standin(routes) as s:
        r = s.run(["logs", SANDBOX])
        assert (r.stdout, r.stderr) == (b"a\nb\n", b"cloche: 10 bytes of stdout of prc_2 are no longer kept\n")
        assert s.run(["logs", SANDBOX, "prc_1"]).stdout == b"a\n"
        assert s.run(["logs", "prc_2"]).stdout == b"b\n"
        failed(s.run(["logs", "prc_3"]), "no such process")
        failed(s.run(["logs", "-f", SANDBOX]), "say which one")
        r = s.run(["logs", "--json", SANDBOX, "prc_1"])
        assert [json.loads(line)["type"] for line in r.stdout.splitlines()] == ["stdout", "exited"]


# ---------------------------------------------------------------------------------------------------------- cp


def tar(*members):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o644
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            info.linkname = "" if kind == tarfile.REGTYPE else content.decode()
            t.addfile(info, io.BytesIO(content))
    return b.getvalue()


F, D, L, H = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def copy_out(tmp_path, archive, *args, dst="dst", **kw):
    with Standin({f"GET {BOX}/files/stat": STAT_FOLDER, f"GET {BOX}/archive": archive}) as s:
        return s.run(["cp", *args, f"{SANDBOX}:/workspace/d", tmp_path / dst], **kw)


def tree(folder):
    return {str(p.relative_to(folder)): None if p.is_dir() and not p.is_symlink() else
            os.readlink(p) if p.is_symlink() else p.read_bytes() for p in sorted(folder.rglob("*"))}


def test_a_folder_comes_out(tmp_path):
    archive = reply(tar(("./", D, b""), ("./a", F, b"1"), ("./s/", D, b""), ("./s/b", F, b"2" * 70000)), 200, "application/x-tar")
    assert copy_out(tmp_path, archive).returncode == 0
    assert tree(tmp_path) == {"dst": None, "dst/a": b"1", "dst/s": None, "dst/s/b": b"2" * 70000}
    assert copy_out(tmp_path, archive).returncode == 0  # now dst is there: below it, by its name
    assert {"dst/d": None, "dst/d/a": b"1"}.items() <= tree(tmp_path).items()


@pytest.mark.parametrize("members", [
    [("../evil", F, b"x")], [("/tmp/cloche-evil", F, b"x")], [("a/../../evil", F, b"x")], [("..", D, b"")],
    [("l", L, b".."), ("l/evil", F, b"x")], [("l", L, b"/tmp"), ("l/cloche-evil", F, b"x")],
])
def test_FS_32_nothing_gets_out_of_the_folder(tmp_path, members):
    (tmp_path / "dst").mkdir()
    for options in ([], ["--links"]):
        r = copy_out(tmp_path, reply(tar(*members)), *options)
        assert r.returncode in (1, 125), r
        assert not (tmp_path / "evil").exists() and not os.path.exists("/tmp/cloche-evil")
        assert not (tmp_path / "dst" / "evil").exists()


def test_FS_32_a_link_that_is_there_is_not_gone_through(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "dst" / "d").mkdir(parents=True)
    os.symlink(tmp_path / "other", tmp_path / "dst" / "d" / "s")
    failed(copy_out(tmp_path, reply(tar(("s/b", F, b"x")))), "a link is in the way")
    assert list((tmp_path / "other").iterdir()) == []


def test_what_is_left_out_is_said(tmp_path):
    members = [("l", L, b"/etc/passwd"), ("e\x1b[2J", F, b"x"), ("n\nx", F, b"x"), ("fine", F, b"x")]
    r = copy_out(tmp_path, reply(tar(*members)))
    assert r.returncode == 1 and r.stderr.count(b"left out: ") == 3 and b"\x1b" not in r.stderr, r
    assert tree(tmp_path / "dst") == {"fine": b"x"}
    r = copy_out(tmp_path, reply(tar(*members)), "-q", "--links", dst="other")
    assert r.returncode == 1 and r.stderr == b""
    assert tree(tmp_path / "other") == {"fine": b"x", "l": "/etc/passwd"}


@pytest.mark.parametrize("kind, why", [(H, "hard links"), (tarfile.FIFOTYPE, "devices and pipes"), (tarfile.CHRTYPE, "devices and pipes"),
                                       (tarfile.GNUTYPE_SPARSE, "sparse files")])
def test_FS_32_what_the_service_never_sends_is_refused(tmp_path, kind, why):
    failed(copy_out(tmp_path, reply(tar(("x", kind, b"y"), ("fine", F, b"x")))), why)
    assert tree(tmp_path / "dst") == {}


def test_many_left_out_are_counted(tmp_path):
    r = copy_out(tmp_path, reply(tar(*[(f"l{n}", L, b"x") for n in range(300)])))
    assert r.returncode == 1 and len(r.stderr.splitlines()) == 11 and b"300 in all" in r.stderr


@pytest.mark.parametrize("archive, word", [
    (reply(b""), "cut off"), (reply(tar(("a", F, b"x" * 2000))[:1600]), "cut off"), (reply(b"x" * 5000), "header block"),
    ([head(200, "application/x-tar", "Transfer-Encoding: chunked") + b"\r\n" + chunk(tar(("a", F, b"x" * 2000))[:1600]),
      HANG_UP], "in the middle"),
    (reply(tar(("a", F, b"x" * 2000))), "--max-size"),
    (problem(404, "no such path"), "no such path"),
])
def test_archives_that_are_none(tmp_path, archive, word):
    failed(copy_out(tmp_path, archive, "--max-size", "1k" if word == "--max-size" else "1g"), word)
    assert not (tmp_path / "dst" / "a").exists()


def test_a_file_comes_out_whole_or_not_at_all(tmp_path):
    routes = {f"GET {BOX}/files/stat": STAT_FILE, f"GET {BOX}/files": reply(b"new\0" * 50000)}
    (tmp_path / "f").write_text("old")
    with Standin(routes) as s:
        for dst in (tmp_path / "f", tmp_path, tmp_path / "g"):
            assert s.run(["cp", f"{SANDBOX}:/workspace/f", dst]).returncode == 0
        assert tree(tmp_path) == {"f": b"new\0" * 50000, "g": b"new\0" * 50000}
        assert s.run(["cp", f"{SANDBOX}:f", "-"]).stdout == b"new\0" * 50000
        assert "path=/workspace/f" in s.requests[-1].query
        (tmp_path / "f").write_text("old")
        failed(s.run(["cp", "--max-size", "1k", f"{SANDBOX}:f", tmp_path / "f"]), "--max-size")
        routes[f"GET {BOX}/files"] = [head(200, "x/y", "Content-Length: 10") + b"\r\nnew", HANG_UP]
        failed(s.run(["cp", f"{SANDBOX}:f", tmp_path / "f"]), "in the middle")
        assert sorted(os.listdir(tmp_path)) == ["f", "g"] and (tmp_path / "f").read_text() == "old"
        p = cloche.start(["cp", f"{SANDBOX}:f", str(tmp_path / "f")], env=s.environment())
        p.communicate()


def test_interrupted_copy_leaves_nothing(tmp_path):
    def answer(_):
        yield head(200, "x/y", "Content-Length: 1000000") + b"\r\nnew"
        time.sleep(20)
    with Standin({f"GET {BOX}/files/stat": STAT_FILE, f"GET {BOX}/files": answer}) as s:
        p = cloche.start(["cp", f"{SANDBOX}:f", str(tmp_path / "f")], env=s.environment())
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not list(tmp_path.iterdir()):
            time.sleep(0.01)
        assert list(tmp_path.iterdir())  # the temporary one
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == 130
        p.communicate()
    assert list(tmp_path.iterdir()) == []


def test_files_and_folders_go_in(tmp_path):
    src = tmp_path / "src"
    (src / "sub" / ("long" * 40)).mkdir(parents=True)
    (src / "a").write_bytes(b"1" * 1000)
    (src / "sub" / ("long" * 40) / "é").write_bytes(b"2")
    os.symlink("/etc/passwd", src / "l")
    os.mkfifo(src / "fifo")
    routes = {f"GET {BOX}": reply({"id": SANDBOX, "state": "running"}), f"POST {BOX}/files/mkdir": reply({}, 201),
              f"PUT {BOX}/archive": b"HTTP/1.1 204 No\r\n\r\n", f"PUT {BOX}/files": b"HTTP/1.1 201 Yes\r\nContent-Length: 0\r\n\r\n",
              f"GET {BOX}/files/stat": problem(404, "no such path")}
    with Standin(routes) as s:
        r = s.run(["cp", src, f"{SANDBOX}:/workspace/new dir"])
        assert r.returncode == 1 and b"left out: 1" in r.stderr, r
        assert s.requests[-2].json == {"path": "/workspace/new dir", "parents": True}
        assert s.requests[-1].query == "path=/workspace/new%20dir"
        with tarfile.open(fileobj=io.BytesIO(s.requests[-1].body)) as t:
            assert sorted(t.getnames()) == sorted(["a", "l", "sub", "sub/" + "long" * 40, "sub/" + "long" * 40 + "/é"])
            assert t.extractfile("a").read() == b"1" * 1000 and t.getmember("l").linkname == "/etc/passwd"
        r = s.run(["cp", src / "a", f"{SANDBOX}:b/"])
        assert r.returncode == 0 and s.requests[-1].query == "path=/workspace/b/a&mode=0644" and len(s.requests[-1].body) == 1000
        routes[f"GET {BOX}/files/stat"] = STAT_FOLDER
        s.run(["cp", src / "a", f"{SANDBOX}:/"])
        assert s.requests[-1].query == "path=/a&mode=0644"
        s.run(["cp", f"{src}/.", f"{SANDBOX}:d"])
        assert s.requests[-1].query == "path=/workspace/d" and s.requests[-1].path == f"{BOX}/archive"
        assert s.run(["cp", "-", f"{SANDBOX}:d"], stdin=tar(("x", F, b"y"))).returncode == 0
        assert s.requests[-1].body == tar(("x", F, b"y")) and s.requests[-1].path == f"{BOX}/archive"
        routes[f"GET {BOX}/files/stat"] = STAT_FILE
        assert s.run(["cp", "-", f"{SANDBOX}:f"], stdin=b"bytes").returncode == 0
        assert s.requests[-1].body == b"bytes" and s.requests[-1].path == f"{BOX}/files"


def test_a_refusal_while_sending_is_heard(tmp_path):
    """413 before the body is through: no deadlock, and the reason is told, not the broken pipe."""
    (tmp_path / "big").write_bytes(b"x" * (30 << 20))

    class Early(Standin):
        def read(self, peer, data):
            if data.startswith(b"PUT"):
                peer.sendall(problem(413, "larger than the disk", "TOO_LARGE").replace(b"Content-Type", b"Connection: close\r\nContent-Type"))
                time.sleep(0.2)
                raise ConnectionError
            return super().read(peer, data)

    with Early({f"GET {BOX}/files/stat": STAT_FILE}) as s:
        failed(s.run(["cp", tmp_path / "big", f"{SANDBOX}:f"]), "larger than the disk")


@pytest.mark.parametrize("args", [["a", "b"], [f"{SANDBOX}:a", "sbx_2:b"], ["./sbx_1:a", "b"], [f"{SANDBOX}:/" + "x" * 5000, "b"],
                                  ["/nonexistent/file", f"{SANDBOX}:x"]])
def test_copies_that_are_refused(args, tmp_path):
    with Standin({}) as s:
        r = s.run(["cp", *args], cwd=tmp_path)
        assert r.returncode == 125 and s.requests == [], r


# ------------------------------------------------------------------------------------------- create and volumes


def test_what_create_asks_for(tmp_path):
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "mark").write_text("here")
    with Standin({"POST /v1/sandboxes": reply({"id": "sbx_1"}, 201)}) as s:
        r = s.run(["create", "-m", "1g", "--cpus=2", "--tmpfs", "/t:size=1m", "--disk", "2g", "--timeout", "never",
                   "--on-timeout", "pause", "--no-resume-on-touch", "-l", "a=b", "--label=c=d=e", "-e", "X=y", "-v", f"{tmp_path}/v:/data:ro",
                   "-v", f"{tmp_path}/v:/more"], env={"CLOCHE_PIDS_LIMIT": "9", "CLOCHE_MEMORY": "5g", "CLOCHE_TIMEOUT": "1s"})
        assert (r.returncode, r.stdout) == (0, b"sbx_1\n"), r
        q = s.requests[0]
        assert q.json == {"memory": "1g", "cpus": "2", "tmpfs": ["/t:size=1m"], "disk": "2g", "timeout": "never",
                          "on_timeout": "pause", "resume_on_touch": False, "labels": {"a": "b", "c": "d=e"}, "env": {"X": "y"},
                          "volume_fds": ["/data:ro", "/more:rw"], "pids_limit": "9"}
        assert len(q.fds) == 2
        for fd in q.fds:  # of the very folder
            assert os.path.samefile(f"/proc/self/fd/{fd}", tmp_path / "v")
            assert not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH  # open for reading: that proves a right to it
            os.close(fd)
        failed(s.run(["create", "-v", f"{tmp_path}/none:/data"]), "No such file")


def test_volumes_over_tcp_are_paths(tmp_path):
    with Standin({"POST /v1/sandboxes": reply({"id": "sbx_1"}, 201)}, tcp=True) as s:
        assert s.run(["create", "-v", "/srv/x:/data:ro"]).returncode == 0
        assert s.requests[0].json == {"volume": ["/srv/x:/data:ro"]}


@pytest.mark.parametrize("args, word", [(["x"], "usage"), (["--label", "x"], "NAME=VALUE"), (["--memory", "lots"], "--memory"),
                                        (["--in", "x"], "unknown option"), (["-e", "A=\udcff"], "UTF-8")])
def test_create_is_asked_wrongly(args, word):
    with Standin({}) as s:
        r = s.run(["create", *args])
        assert r.returncode in (2, 125) and word in r.stderr.decode(), r
        assert s.requests == []


# ------------------------------------------------------------------------------------------ events, audit, others


def test_events_end_at_the_heartbeat():
    event = {"seq": 3, "time": "2026-01-01T00:00:00Z", "type": "sandbox.created", "sandbox": "sbx_1", "run": None, "reason": "x\x1b"}
    with Standin({"GET /v1/events": lambda _: endless(b"".join(stream({}, event, {}, end=False)[:-1]), b"")}) as s:
        r = s.run(["events", "--sandbox", "sbx_1"])
        assert r.returncode == 0 and r.stdout.startswith(b"3 ") and b"sbx_1: x" in r.stdout, r
        r = s.run(["events", "--json", "--since", "7"])
        assert json.loads(r.stdout) == event
        assert s.paths() == ["GET /v1/events?sandbox=sbx_1&since=0", "GET /v1/events?since=7"]
        assert s.run(["events", "--since", "-1"]).returncode == 2


def test_audit_and_its_verification():
    rows = [{"seq": 1, "time": "2026-01-01T00:00:00Z", "actor": "uid:0", "session": None, "action": "sandbox.create", "object": "sbx_1",
             "details": {"a": "\x1b"}}]
    with Standin({"GET /v1/audit": reply({"rows": rows, "next": None}),
                  "GET /v1/audit/verify": reply({"ok": True, "rows": 5, "first_bad": None, "head": "ab"})}) as s:
        r = s.run(["audit", "--after", "2"])
        assert r.returncode == 0 and b"sandbox.create" in r.stdout and b"\x1b" not in r.stdout
        assert s.requests[0].query == "after=2&limit=100"
        assert s.run(["audit", "verify"]).stdout == b"5 records, unbroken; head ab\n"
        assert s.run(["audit", "nonsense"]).returncode == 2
        s.routes["GET /v1/audit/verify"] = reply({"ok": False, "rows": 5, "first_bad": 3, "head": "ab"})
        r = s.run(["audit", "verify"])
        assert (r.returncode, r.stdout) == (1, b"the chain is broken at record 3\n")


def test_keys():
    routes = {"POST /v1/keys": reply({"id": "key_1", "name": "n", "secret": "clk_abc"}, 201),
              "GET /v1/keys": reply({"keys": [{"id": "key_1", "name": "n", "quota": {"sandboxes": 1}}]}),
              "DELETE /v1/keys/key_1": b"HTTP/1.1 204 No\r\n\r\n"}
    with Standin(routes) as s:
        r = s.run(["key", "create", "n", "--quota", "sandboxes=10", "--quota", "memory=4g"])
        assert (r.returncode, r.stdout) == (0, b"clk_abc\n")
        assert s.requests[0].json == {"name": "n", "quota": {"sandboxes": 10, "memory": "4g"}}
        assert b'{"sandboxes":1}' in s.run(["key", "ls"]).stdout
        assert s.run(["key", "revoke", "key_1"]).stdout == b"key_1\n"
        failed(s.run(["key", "revoke", "../x"]), "not the id")
        for args in (["key"], ["key", "create"], ["key", "ls", "x"], ["key", "steal", "x"]):
            assert s.run(args).returncode == 2


def test_kill_goes_on_after_one_that_fails():
    with Standin({f"DELETE {BOX}": reply({"id": SANDBOX}), "DELETE /v1/sandboxes/sbx_2": problem(404, "no such sandbox")}) as s:
        r = s.run(["kill", "sbx_2", SANDBOX])
        assert (r.returncode, r.stdout, r.stderr) == (125, SANDBOX.encode() + b"\n", b"cloche: sbx_2: no such sandbox\n")
        assert s.connections <= 2  # kept between the requests


def test_top_and_ps():
    box = {"id": SANDBOX, "state": "running", "usage": {"cpu_ms": 1500, "memory_bytes": 1 << 20, "pids": 3}, "limits": {"memory": 1 << 28}}
    inside = [{"pid": 1, "ppid": 0, "state": "S", "cpu_ms": 10, "rss_bytes": 4096, "threads": 1, "process": "prc_1",
               "command": ["sh", "-c", "\x1b[2J"]}, {"pid": None, "command": "x" * 5000}]
    with Standin({"GET /v1/sandboxes": reply({"sandboxes": [box], "next": None}), f"GET {BOX}/processes": reply(inside),
                  "GET /v1/pool": reply({"ready": 3, "misses": {"empty": 2, "x": "\x1b"}, "times": 7})}) as s:
        r = s.run(["top", "--once"])
        assert r.stdout.startswith(b"pool: 3 ready (-), 0 being made, 0 dying; 0 hits, 2 misses") and b"\x1b" not in r.stdout
        assert r.returncode == 0 and r.stdout.splitlines()[2].split()[:7] == [SANDBOX.encode(), b"running", b"-", b"1.5s", b"1.0m", b"256m", b"3"]
        r = s.run(["ps", SANDBOX])
        assert r.returncode == 0 and b"sh -c \\x1b[2J" in r.stdout and b"\x1b" not in r.stdout
        assert s.requests[-1].query == "all"


def test_top_is_live_on_a_terminal_until_interrupted():
    with Standin({"GET /v1/sandboxes": reply({"sandboxes": [], "next": None}), "GET /v1/pool": reply({})}) as s:
        def act(pid, _):
            while len(s.requests) < 4:
                time.sleep(0.02)
            os.kill(pid, signal.SIGINT)
        status, got, _, _ = on_terminal(s, ["top"], act, b"SANDBOX")
        assert status == 0 and got.count(b"\x1b[H\x1b[J") >= 2


def test_serve_says_what_it_cannot_start(tmp_path):
    """A copy far from the build folder, and nothing installed."""
    copy = tmp_path / "cloche"
    copy.write_bytes(open(cloche.binary(), "rb").read())
    copy.chmod(0o755)
    (tmp_path / "cloche-serve").write_text("#!/bin/sh\necho \"$@\"\nexit 7\n")
    (tmp_path / "cloche-serve").chmod(0o755)
    done = subprocess.run([copy, "serve", "--check", "--config", "x y"], capture_output=True)
    assert (done.returncode, done.stdout) == (7, b"--check --config x y\n")
    assert b"--check" in subprocess.run([copy, "serve", "--help"], capture_output=True).stdout


@pytest.mark.parametrize("verb", ["create", "ls", "exec", "ps", "logs", "cp", "kill", "pause", "resume", "renew", "events", "audit",
                                  "top", "key", "serve", "doctor", "config", "run", "python"])
def test_every_verb_explains_itself(verb):
    """Without a service; the manual page and the completion have the same options."""
    one, two = cloche.run([verb, "--help"], json=False), cloche.run(["help", verb], json=False)
    assert one.returncode == 0 and one.stdout == two.stdout and one.stderr == b""
    man = cloche.run(["reference", "man"], json=False).stdout.decode().replace("\\", "")
    bash = cloche.run(["reference", "bash"], json=False).stdout.decode()
    own = bash.partition(f"\t{verb})")[2].partition("esac")[0]
    table = one.stdout.decode().partition("\noptions:\n")[2].partition("\n\n")[0]
    names = [word for line in table.splitlines() for word in line[:34].split() if word.startswith("--")]
    assert names and "--help" in names
    for name in names:
        assert f"{name} " in own or f'{name}"' in own, name
        assert f"*{name}*" in man or name == "--help", name
