# SPDX-License-Identifier: Apache-2.0
"""Registries for tests: Debian's docker-registry on loopback, images pushed by skopeo, a token server, certificates
of a CA of our own, and a server that does whatever a test's script says."""
import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cloche

OCI = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
PROXIES = [n for n in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")]


def need(*programs):
    for p in programs:
        cloche.need(p, shutil.which(p) is not None, f"{p} is not installed")


def client():
    return str(Path(cloche.binary()).parent / "tests" / "registry" / "registry-pull")


def memory_kib():
    """What a pull may take; with AddressSanitizer freed memory is kept for a while."""
    return (1024 if "asan" in client() else 64) << 10


def environment(more=None):
    """Nobody's proxies, nobody's logins."""
    env = {k: v for k, v in os.environ.items() if k.lower() not in PROXIES and k != "DOCKER_CONFIG"}
    return {**env, "HOME": "/nonexistent", **(more or {})}


class Answer(dict):
    """What registry-pull printed, with `seconds`, `status` and `stderr`."""
    __getattr__ = dict.__getitem__


def start(reference, folder, *, registries=None, env=None, prefix=(), preexec=None, **options):
    folder.mkdir(exist_ok=True)
    argv = [*prefix, client()]
    if registries is not None:
        argv += ["--registries", json.dumps(registries)]
    for name, value in options.items():
        argv += ["--" + name.replace("_", "-"), str(value)]
    return subprocess.Popen([*argv, reference, str(folder)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=environment(env), preexec_fn=preexec)


def finish(process, began=None, timeout=60):
    began = began or time.monotonic()
    out, err = process.communicate(timeout=timeout)
    assert process.returncode in (0, 1), (process.returncode, out, err)
    answer = Answer(json.loads(out), seconds=time.monotonic() - began, status=process.returncode, stderr=err)
    answer.setdefault("cause", "REFERENCE")
    assert (answer["error"] is None) == (process.returncode == 0)
    return answer


def pull(reference, folder, **kw):
    """registry-pull REFERENCE FOLDER; keywords are its options."""
    began = time.monotonic()
    return finish(start(reference, folder, **kw), began)


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def partial(folder, name=None):
    """The file of a blob while it comes; without a name: all there are."""
    return folder / name[7:] if name else [p for p in folder.iterdir() if not p.name.startswith("sha256:")]


def check_blobs(folder, answer):
    """Every blob of the manifest is there and is what its name says; nothing half is left."""
    names = {b["digest"] for b in answer["blobs"]}
    for b in answer["blobs"]:
        data = (folder / b["digest"]).read_bytes()
        assert digest(data) == b["digest"] and len(data) == b["size"] and b["finished"]
    assert {p.name for p in folder.iterdir()} >= names
    assert not partial(folder)


# ----------------------------------------------------------------------------------------------------------- images


def layer(files, compressed=True):
    """A gzipped tar of {name: bytes}, the same every time, and the digest of the plain one."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as t:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), 1, mtime=0) if compressed else raw.getvalue(), digest(raw.getvalue())


class Image:
    """An image in memory: blobs by digest, and the manifest."""

    def __init__(self, layers=2, size=200_000, architecture="amd64", seed=b"", compressed=True):
        self.blobs = {}
        diffs, descriptors = [], []
        for i in range(layers):
            data, diff = layer({f"file{i}": hashlib.shake_128(seed + bytes([i])).digest(size)}, compressed)
            self.blobs[digest(data)] = data
            diffs.append(diff)
            descriptors.append({"mediaType": GZIP if compressed else GZIP.replace("+gzip", ""), "digest": digest(data),
                                "size": len(data)})
        config = json.dumps({"architecture": architecture, "os": "linux", "config": {},
                             "rootfs": {"type": "layers", "diff_ids": diffs}}).encode()
        self.blobs[digest(config)] = config
        self.document = {"schemaVersion": 2, "mediaType": OCI,
                         "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
                         "layers": descriptors}

    @property
    def manifest(self):
        return json.dumps(self.document).encode()

    def layout(self, folder):
        """As an OCI layout, for skopeo."""
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        for name, data in {**self.blobs, digest(self.manifest): self.manifest}.items():
            (blobs / name[7:]).write_bytes(data)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [
            {"mediaType": OCI, "digest": digest(self.manifest), "size": len(self.manifest),
             "annotations": {"org.opencontainers.image.ref.name": "t"}}]}))
        return f"oci:{folder}:t"


def skopeo(*args):
    done = subprocess.run(["skopeo", *args], capture_output=True, env={**environment(), "HOME": "/tmp"}, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def push(source, registry, name, *options, host=None):
    skopeo("copy", "--dest-tls-verify=false", *options, *registry.push_options, source,
           f"docker://{host or registry.host}/{name}")


# ------------------------------------------------------------------------------------------------------ certificates


def openssl(*args, **kw):
    return subprocess.run(["openssl", *args], check=True, capture_output=True, **kw).stdout


class Authority:
    """A CA, and certificates for 127.0.0.1 and localhost."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "ca.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                "/CN=test CA", "-keyout", str(folder / "ca.key"), "-out", str(self.file))

    def issue(self, name, san="IP:127.0.0.1,DNS:localhost"):
        key, cert = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        request = openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                          "-keyout", str(key))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={san}\n")
        openssl("x509", "-req", "-CA", str(self.file), "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial", "-days", "2",
                "-extfile", str(extensions), "-out", str(cert), input=request)
        return cert, key


# ---------------------------------------------------------------------------------------------------- docker-registry


def free_port(address="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
        s.bind((address, 0))
        return s.getsockname()[1]


class Registry:
    """Debian's docker-registry in a folder. auth: a mapping of its configuration."""

    def __init__(self, folder, *, auth=None, tls=None, address="127.0.0.1", listen=None, push_options=()):
        self.folder, self.port = folder, free_port(address)
        self.push_options = list(push_options)
        self.host = f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"
        http = {"addr": f"{listen}:{self.port}" if listen else self.host}
        if tls:
            http["tls"] = {"certificate": str(tls[0]), "key": str(tls[1])}
        config = {"version": "0.1", "log": {"level": "error"}, "http": http,
                  "storage": {"filesystem": {"rootdirectory": str(folder / "store")}, "delete": {"enabled": True}}}
        if auth:
            config["auth"] = auth
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, env=environment())
        self._wait(address)

    def _wait(self, address):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(OSError):
                socket.create_connection((address, self.port), timeout=1).close()
                return
            time.sleep(0.02)
        raise AssertionError("docker-registry does not come up")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ------------------------------------------------------------------------------------------------------- token server


class TokenServer:
    """The token server of the distribution project's specification: signs what docker-registry verifies."""

    def __init__(self, folder, users, public=(), lifetime=300):
        self.folder, self.users, self.public, self.lifetime = folder, users, public, lifetime
        self.asked = []  # (path, query, Authorization, form)
        folder.mkdir(exist_ok=True)
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tokens", "-keyout",
                str(folder / "token.key"), "-out", str(folder / "token.pem"))
        self.server = serve_http(self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/token"

    def auth(self):
        return {"token": {"realm": self.url, "service": "test registry", "issuer": "tests",
                          "rootcertbundle": str(self.folder / "token.pem")}}

    def sign(self, access, user):
        def part(data):
            return base64.urlsafe_b64encode(data).rstrip(b"=")
        der = openssl("x509", "-in", str(self.folder / "token.pem"), "-outform", "DER")
        now = int(time.time())
        head = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
        body = {"iss": "tests", "sub": user, "aud": "test registry", "exp": now + self.lifetime, "nbf": now - 10, "iat": now,
                "jti": "1", "access": access}
        text = part(json.dumps(head).encode()) + b"." + part(json.dumps(body).encode())
        return (text + b"." + part(openssl("dgst", "-sha256", "-sign", str(self.folder / "token.key"), input=text))).decode()

    def grant(self, authorization, query):
        """The answer: (status, object)."""
        user = ""
        if authorization.startswith("Basic "):
            user, _, password = base64.b64decode(authorization[6:]).decode().partition(":")
            if self.users.get(user) != password:
                return 401, {"errors": [{"code": "UNAUTHORIZED", "message": "wrong password"}]}
        access = []
        for scope in query.get("scope", []):
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            allowed = [a for a in actions.split(",") if user or (a == "pull" and name in self.public)]
            access.append({"type": kind, "name": name, "actions": allowed})
        return 200, {"token": self.sign(access, user), "expires_in": self.lifetime}

    def _handler(self):
        tokens = self

        class Handler(Quiet):
            def do_GET(self):
                path, _, text = self.path.partition("?")
                query = urllib.parse.parse_qs(text)
                authorization = self.headers.get("Authorization", "")
                tokens.asked.append((path, query, authorization, None))
                self.reply(*tokens.grant(authorization, query))

            def do_POST(self):
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                tokens.asked.append((self.path, {}, self.headers.get("Authorization", ""), form))
                if form.get("refresh_token") != ["the identity token"]:
                    return self.reply(401, {})
                access = [{"type": "repository", "name": s.split(":")[1], "actions": ["pull"]} for s in form["scope"]]
                self.reply(200, {"access_token": tokens.sign(access, "identity")})

        return Handler

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve_http(handler, address=("127.0.0.1", 0)):
    server = ThreadingHTTPServer(address, handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


# ---------------------------------------------------------------------------------------------------- scripted server


class Request:
    def __init__(self, text):
        lines = text.decode("latin-1").split("\r\n")
        self.method, self.path, _ = lines[0].split(" ", 2)
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}


class Script:
    """A server on a raw socket. routes: [(pattern of the path, function(connection, request))], the first that
    fits; a function writes what it likes. Without one: 404. requests holds what was asked for."""

    def __init__(self, routes=(), sock=None, tls=None):
        self.routes, self.requests, self.stop = list(routes), [], threading.Event()
        self.connections = 0
        if sock is None:
            sock = socket.create_server(("127.0.0.1", 0))
        self.sock, self.tls = sock, tls
        self.port = sock.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(c,), daemon=True).start()

    def _serve(self, c):
        with c, contextlib.suppress(OSError, ValueError):
            c.settimeout(30)
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                c = self.tls.wrap_socket(c, server_side=True)
            while True:
                text = b""
                while b"\r\n\r\n" not in text:
                    more = c.recv(65536)
                    if not more or (text + more)[:1] == b"\x16":  # who speaks TLS here is told to try again without
                        return
                    text += more
                request = Request(text.split(b"\r\n\r\n")[0])
                self.requests.append(request)
                action = next((f for p, f in self.routes if re.search(p, request.path)), missing)
                if action(c, request) is False:
                    return

    def close(self):
        self.stop.set()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def write(c, status="200 OK", body=b"", length=None, **headers):
    """A whole answer. length: what Content-Length says instead of the truth; keywords are headers, _ for -."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n"
    for name, value in headers.items():
        head += f"{name.replace('_', '-')}: {value}\r\n"
    c.sendall(head.encode("latin-1") + b"\r\n" + body)


def missing(c, _request):
    write(c, "404 Not Found", b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}',
          Content_Type="application/json")


def answer(*args, **kw):
    """A route's function that always writes this."""
    return lambda c, request: write(c, *args, **kw)


def serve_image(image, **instead):
    """Routes of an honest registry for one image, under any name. Keywords replace: manifest, blob (functions)."""
    def manifest(c, request):
        write(c, body=image.manifest, Content_Type=OCI)

    def blob(c, request):
        data = image.blobs.get(request.path.rsplit("/", 1)[1])
        if data is None:
            return missing(c, request)
        begin = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        if begin:
            n = int(begin[1])
            return write(c, "206 Partial Content", data[n:], Content_Range=f"bytes {n}-{len(data) - 1}/{len(data)}")
        write(c, body=data, Content_Type="application/octet-stream")

    return [("/manifests/", instead.get("manifest", manifest)), ("/blobs/", instead.get("blob", blob))]
