# SPDX-License-Identifier: Apache-2.0
"""A service for tests, and a small client of its API. Only the standard library (and openapi.py, which holds every answer
against the document).

    with service.Service() as s:
        box = s.root.box(memory="64m")                 # POST /v1/sandboxes
        assert box.exec(["echo", "hi"]).out == b"hi\\n"
        s.root.problem(404, "NOT_FOUND", "GET", "/v1/sandboxes/sbx_" + 32 * "0")

Each service has its own socket, state, runtime folder and port. What a service of this machine does is not touched.
"""
import base64
import contextlib
import http.client
import json as jsonlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import cloche
import contract
import openapi
import proc

# ------------------------------------------------------------------------------------------------------ the client


class Answer:
    """status, headers (case-insensitive get), body as bytes, json parsed on demand."""
    def __init__(self, method, path, status, headers, body):
        self.method, self.path, self.status, self.headers, self.body = method, path, status, headers, body

    @property
    def json(self):
        return jsonlib.loads(self.body)

    def __repr__(self):
        return f"<{self.method} {self.path}: {self.status} {self.body[:600]!r}>"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def query_text(query):
    """{"path": "/a b", "parents": True} as ?path=/a%20b&parents. None and False leave a parameter out."""
    words = []
    for name, value in (query or {}).items():
        if value is True:
            words.append(quote(name))
        elif value is not None and value is not False:
            words.append(f"{quote(name)}={quote(value if isinstance(value, bytes) else str(value), safe='/')}")
    return "?" + "&".join(words) if words else ""


class Stream:
    """An answer that is read as it comes: status, headers, events(), read(), close()."""
    def __init__(self, connection, response):
        self.connection, self.response = connection, response
        self.sock = connection.sock or response.fp.raw._sock
        self.status, self.headers, self.rest = response.status, response.headers, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Cut the connection, as a client does that goes away."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.response.close()
        self.connection.close()

    def timeout(self, seconds):
        self.sock.settimeout(seconds)

    def read(self, size=65536):
        return self.response.read1(size)

    def lines(self):
        while True:
            head, newline, tail = self.rest.partition(b"\n")
            if newline:
                self.rest = tail
                yield head
                continue
            pieces = [self.rest]
            while b"\n" not in pieces[-1]:
                piece = self.read(1 << 20)
                if not piece:
                    assert not b"".join(pieces), f"the stream ends inside a line: {b''.join(pieces)[-200:]!r}"
                    return
                pieces.append(piece)
            self.rest = b"".join(pieces)

    def events(self):
        """Every line as an object; the empty ones (heartbeats) too."""
        for line in self.lines():
            yield jsonlib.loads(line)

    def until(self, condition):
        """The first event for which CONDITION holds; fails when the stream ends before."""
        seen = []
        for event in self.events():
            seen.append(event)
            if condition(event):
                return event
        raise AssertionError(f"not in the stream: {seen[-5:]}")


def event_bytes(event):
    return base64.b64decode(event["data"], validate=True) if event["encoding"] == "base64" else event["data"].encode()


def joined(events, name):
    """The bytes of one stream, from all its events."""
    return b"".join(event_bytes(e) for e in events if e.get("type") == name)


def outcome(result, streamed=False):
    """A result object as attributes, with out and err as bytes; one that contradicts itself fails the test. streamed: it is the
    last event of a stream."""
    o = SimpleNamespace(**result, json=result)
    decode = base64.b64decode if result["encoding"] == "base64" else str.encode
    o.out, o.err = decode(result["stdout"]), decode(result["stderr"])
    return contract.check_result(o, streamed)


class Client:
    """One caller. address: a path (unix socket) or (host, port)."""
    def __init__(self, address, token=None, headers=None, runtime=None):
        self.address, self.runtime = address, runtime
        self.headers = dict(headers or {})
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def with_runtime(self, name):
        return Client(self.address, headers=self.headers, runtime=name)

    def socket(self, timeout=30):
        """A bare connection, for what no proper client says."""
        if isinstance(self.address, tuple):
            return socket.create_connection(self.address, timeout)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(timeout)
        s.connect(self.address)
        return s

    def connection(self, timeout=60):
        if isinstance(self.address, tuple):
            return http.client.HTTPConnection(*self.address, timeout=timeout)
        return UnixConnection(self.address, timeout)

    def _send(self, connection, method, path, body, json, query, headers):
        head = {**self.headers, **(headers or {})}
        if json is not None:
            body = jsonlib.dumps(json).encode()
            head.setdefault("Content-Type", "application/json")
        elif body is not None and method in ("PUT", "POST") and "Content-Type" not in head:
            head["Content-Type"] = "application/octet-stream"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an early answer
            connection.request(method, path + query_text(query), body=body,
                               headers={k: v for k, v in head.items() if v is not None})
        return connection.getresponse()

    def request(self, method, path, body=None, json=None, query=None, headers=None, timeout=60, check=True):
        """One request on a connection of its own. The answer is held against the document unless check=False."""
        connection = self.connection(timeout)
        try:
            r = self._send(connection, method, path, body, json, query, headers)
            answer = Answer(method, path, r.status, r.headers, r.read())
        finally:
            connection.close()
        if check:
            openapi.check_answer(method, path.split("?")[0], answer.status, answer.headers.get("Content-Type"), answer.body)
        return answer

    def stream(self, method, path, body=None, json=None, query=None, headers=None, timeout=60, status=200):
        """The same, read as it comes."""
        connection = self.connection(timeout)
        try:
            r = self._send(connection, method, path, body, json, query, headers)
            assert r.status == status, Answer(method, path, r.status, r.headers, r.read())
            return Stream(connection, r)
        except BaseException:
            connection.close()
            raise

    def expect(self, status, method, path, **kw):
        answer = self.request(method, path, **kw)
        assert answer.status == status, answer
        return answer

    def get(self, path, **query):
        """JSON of a GET that succeeds."""
        return self.expect(200, "GET", path, query=query).json

    def problem(self, status, code, method, path, **kw):
        """A request that is refused with exactly this status and code; the problem."""
        answer = self.request(method, path, **kw)
        assert answer.status == status and answer.headers.get("Content-Type", "").startswith("application/problem+json"), answer
        problem = answer.json
        assert problem["code"] == code and problem["status"] == status and problem["detail"], answer
        return problem

    def run(self, command=None, **body):
        """POST /v1/runs to its end."""
        return outcome(self.expect(200, "POST", "/v1/runs", json=self.body(command, body)).json)

    def body(self, command, body):
        if command is not None:
            body["command"] = command
        if self.runtime:
            body.setdefault("runtime", self.runtime)
        return body

    def box(self, headers=None, **body):
        """A new sandbox as a Box."""
        return Box(self, self.expect(201, "POST", "/v1/sandboxes", json=self.body(None, body), headers=headers).json)


class Box:
    """One sandbox; see docs/api.md for what the calls do. Every one asserts that it succeeds."""
    def __init__(self, client, object):
        self.client, self.made, self.id = client, object, object["id"]
        self.path = f"/v1/sandboxes/{self.id}"

    def __repr__(self):
        return f"<sandbox {self.id}>"

    def object(self):
        return self.client.get(self.path)

    def request(self, method, path, **kw):
        return self.client.request(method, self.path + path, **kw)

    def expect(self, status, method, path, **kw):
        return self.client.expect(status, method, self.path + path, **kw)

    def problem(self, status, code, method, path, **kw):
        return self.client.problem(status, code, method, self.path + path, **kw)

    def kill(self):
        return self.expect(200, "DELETE", "").json

    def pause(self):
        return self.expect(200, "POST", "/pause").json

    def resume(self):
        return self.expect(200, "POST", "/resume").json

    def renew(self, **body):
        return self.expect(200, "POST", "/renew", json=body).json

    # commands
    def exec(self, command=None, **body):
        if command is not None:
            body["command"] = command
        return outcome(self.expect(200, "POST", "/exec", json=body, timeout=120).json)

    def sh(self, script, **body):
        return self.exec(["bash", "-c", script], **body)

    def python(self, code, **body):
        return self.exec(language="python", code=code, **body)

    def exec_stream(self, command=None, patience=60, **body):
        if command is not None:
            body["command"] = command
        return self.client.stream("POST", self.path + "/exec", query={"stream": True}, json=body, timeout=patience)

    def start(self, command=None, **body):
        if command is not None:
            body["command"] = command
        return Process(self, self.expect(201, "POST", "/processes", json=body).json)

    def processes(self):
        return self.expect(200, "GET", "/processes").json["processes"]

    def everything(self):
        return self.expect(200, "GET", "/processes", query={"all": True}).json["processes"]

    # files
    def put(self, path, data=b"", status=None, timeout=120, **query):
        answer = self.request("PUT", "/files", body=data, query={"path": path, **query}, timeout=timeout)
        assert answer.status == status if status else answer.status in (201, 204), answer
        return answer

    def read(self, path, range=None, timeout=120):
        headers = {"Range": range} if range else None
        return self.expect(206 if range else 200, "GET", "/files", query={"path": path}, headers=headers, timeout=timeout).body

    def stat(self, path):
        return self.expect(200, "GET", "/files/stat", query={"path": path}).json

    def list(self, path):
        return self.expect(200, "GET", "/files/list", query={"path": path}).json["entries"]

    def names(self, path):
        return sorted(e["name"] for e in self.list(path))

    def mkdir(self, path, **body):
        return self.expect(204, "POST", "/files/mkdir", json={"path": path, **body})

    def move(self, source, to, **body):
        return self.expect(204, "POST", "/files/move", json={"from": source, "to": to, **body})

    def remove(self, path, **query):
        return self.expect(204, "DELETE", "/files", query={"path": path, **query})

    def watch(self, path, timeout=20):
        return self.client.stream("GET", self.path + "/files/watch", query={"path": path}, timeout=timeout)

    def pack(self, path):
        return self.expect(200, "GET", "/archive", query={"path": path}, timeout=120).body

    def unpack(self, path, data, **kw):
        return self.request("PUT", "/archive", body=data, query={"path": path}, headers={"Content-Type": "application/x-tar"},
                            **kw)


class Process:
    """A background command of a sandbox."""
    def __init__(self, box, object):
        self.box, self.made, self.id = box, object, object["id"]
        self.path = f"/processes/{self.id}"

    def object(self):
        return self.box.expect(200, "GET", self.path).json

    def output(self, follow=False, stdout=None, stderr=None):
        """All events at once; follow: until it has ended."""
        query = {"follow": follow, "stdout": stdout, "stderr": stderr}
        body = self.box.expect(200, "GET", self.path + "/output", query=query).body
        return [jsonlib.loads(line) for line in body.splitlines()]

    def follow(self, timeout=30, **query):
        return self.box.client.stream("GET", self.box.path + self.path + "/output", query={"follow": True, **query},
                                      timeout=timeout)

    def wait(self):
        """The object after its end; waits by following its output."""
        with self.follow() as s:
            s.until(lambda e: e["type"] == "exited")
        return self.object()

    def stdin(self, data, eof=False):
        return self.box.expect(204, "POST", self.path + "/stdin", body=data, query={"eof": eof})

    def signal(self, signal):
        return self.box.expect(204, "POST", self.path + "/signal", json={"signal": signal})

    def delete(self):
        return self.box.expect(204, "DELETE", self.path)


def as_user(uid, gid, function):
    """FUNCTION's result (something JSON can say) from a process of that user and group, with no other groups."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            try:
                said = {"result": function()}
            except BaseException as e:  # the parent's to judge
                said = {"error": f"{type(e).__name__}: {e}"}
            os.write(into, jsonlib.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as f:
        said = jsonlib.loads(f.read() or b'{"error": "died"}')
    os.waitpid(pid, 0)
    assert "error" not in said, said["error"]
    return said["result"]


# ----------------------------------------------------------------------------------------------------- the service


def program_of(pid):
    """The name of what it executes; "" when it is gone, or the kernel's."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def configuration(folder, port, service=None, policy=None, more=None):
    """The text of a configuration file; the one place that knows the names of its keys."""
    keys = {
        "socket": f"{folder}/run/cloche.sock", "runtime_dir": f"{folder}/run", "state_dir": f"{folder}/state",
        "listen": f"127.0.0.1:{port}",
        "quota": {"runs_per_minute": 100000, "sandboxes": 1000, "memory": "1000g", "cpus": 1000,
                  "disk": "1000g"}, **(service or {})
    }
    text = {"service": keys, "policy": {"volume_roots": [f"{folder}/volumes"], **(policy or {})}, **(more or {})}

    def plain(value):  # every scalar is text for the service's YAML; JSON is YAML
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return [plain(v)
                for v in value] if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)

    return yaml(plain(text))


def yaml(value, indent=0):
    pad, lines = "  " * indent, []
    for key, v in value.items():
        if isinstance(v, dict) and v:
            lines.append(f"{pad}{key}:\n{yaml(v, indent + 1)}")
        else:
            lines.append(f"{pad}{key}: {jsonlib.dumps(v)}\n")
    return "".join(lines)


def end_sandboxes(config):
    """With its service stopped: every sandbox that it has left alive."""
    subprocess.run([cloche.binary(), "serve", "--config", config, "--end-sandboxes"], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=cloche.environment(), timeout=60)


def loop_devices():
    found = {}
    for f in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found[f.read_text().strip()] = f.parts[3]
    return found


class Service:
    """`cloche serve` in a folder of its own. service, policy: mappings of the configuration file that differ; more: others of it.

    root    a Client on the socket, as this process's user
    port    of TCP on 127.0.0.1; key(name) makes a Client with a new API key
    log     path of what it wrote to stderr
    """
    def __init__(self, service=None, policy=None, seconds=20, more=None):
        self.folder = Path(tempfile.mkdtemp(prefix="clo-svc."))
        os.chmod(self.folder, 0o755)
        (self.folder / "volumes").mkdir()
        self.port, self.log = free_port(), self.folder / "log"
        self.config = self.folder / "cloche.yaml"
        self.config.write_text(configuration(self.folder, self.port, service, policy, more))
        self.sock = (service or {}).get("socket", str(self.folder / "run" / "cloche.sock"))
        self.root = Client(self.sock)
        self.process = None
        try:
            self.start(seconds)
        except BaseException:
            self.stop(check=False)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop(check=kind is None)

    def start(self, seconds=20):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([cloche.binary(), "serve", "--config", self.config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=cloche.environment(), start_new_session=True, cwd="/")
        self.wait_ready(seconds)

    def wait_ready(self, seconds=20):
        """Until /healthz answers. A socket that is not there yet can only be tried again."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.root.request("GET", "/healthz", timeout=5).status == 200:
                    return
            assert self.process.poll() is None, f"cloche serve ended with {self.process.returncode}:\n{self.said()}"
            assert time.monotonic() < until, f"cloche serve does not answer after {seconds} s:\n{self.said()}"
            time.sleep(0.01)

    def said(self):
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def key(self, name="test", quota=None, headers=None, **more):
        body = {"name": name, **({"quota": quota} if quota else {})}
        made = self.root.expect(201, "POST", "/v1/keys", json=body).json
        client = Client(("127.0.0.1", self.port), made["secret"], headers, **more)
        client.key_id, client.secret = made["id"], made["secret"]
        return client

    def child(self, name):
        """Pid of serve's child of this name (cloched, cloche-spawner), or None while there is none."""
        return proc.child(self.process.pid, name)

    def processes(self):
        """Host pids of everything below serve: cloched, the spawner, and each sandbox with all in it."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                head, _, tail = stat.read_text().rpartition(")")
                parents[int(head.split()[0])] = int(tail.split()[1])
        found, grown = {self.process.pid}, True
        while grown:
            more = {p for p, parent in parents.items() if parent in found} - found
            found, grown = found | more, bool(more)
        return found

    def running(self, name):
        """Those of processes() whose program is this one, lowest pid first."""
        return sorted(p for p in self.processes() if program_of(p) == name)

    def sandboxes(self, *states):
        rows, after = [], None
        while True:
            page = self.root.get("/v1/sandboxes", limit=1000, after=after)
            rows += [r for r in page["sandboxes"] if not states or r["state"] in states]
            after = page["next"]
            if after is None:
                return rows

    def stop(self, check=True):
        """End all sandboxes, then the service. check: what is left of either is a failure."""
        wrong, left = [], self.folder / "run" / "sandboxes"
        if self.process and self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                alive = [row["id"] for row in self.sandboxes("creating", "running", "paused")]
                for one in alive:
                    self.root.request("DELETE", f"/v1/sandboxes/{one}")
                # What is still there then is found below. Prepared ones go with the service.
                contract.until(lambda: not any(os.path.exists(left / one) for one in alive), 5)
            mine = self.processes()
            self.process.send_signal(signal.SIGTERM)
            try:
                status = self.process.wait(15)
                if status not in (0, -signal.SIGTERM):
                    wrong.append(f"cloche serve ended with {status}")
            except subprocess.TimeoutExpired:
                wrong.append("cloche serve does not end on SIGTERM")
                for pid in mine:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                self.process.wait()
            wrong += [f"process {pid} is still there" for pid in sorted(mine) if program_of(pid).startswith("cloche")]
        here = str(self.folder)
        wrong += [f"mounted: {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if here in line]
        wrong += [f"{device}: {path}" for path, device in loop_devices().items() if here in path]
        stays = list(left.iterdir()) if left.is_dir() else []
        wrong += [f"file {f}" for f in stays]
        said = self.said()
        if stays:  # one-shots that a failed test has left: a stop of the service lets them live
            end_sandboxes(self.config)
        shutil.rmtree(self.folder, ignore_errors=True)
        if check:
            assert not wrong, "left behind:\n" + "\n".join(wrong) + "\n" + said
