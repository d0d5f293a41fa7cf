# SPDX-License-Identifier: Apache-2.0
"""A real web server on loopback for the clients of sandboxes: nginx with TLS, and what package managers want to find there.

    with web.Web(folder) as w:
        w.names          the names that its certificate is for; an operator's `resolve:` leads them to 127.0.0.1
        w.config()       cloche.yaml that does so and trusts its authority
        w.rules()        rules that let a request go there
        w.url("/hello")  of the first name; w.requests(): lines of its access log
"""
import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path


NAMES = ("web.test", "pypi.test", "npm.test", "git.test", "apt.test")
NGINX = """
daemon off;
worker_processes 1;
{user}pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log {folder}/access.log;
  types {{ text/html html; application/octet-stream whl tgz deb; text/plain txt; }}
  default_type application/json;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4;
  scgi_temp_path {folder}/t5;
  server {{
    listen 127.0.0.1:{tls} ssl;
    listen 127.0.0.1:{plain};
    ssl_certificate {folder}/server.pem;
    ssl_certificate_key {folder}/server.key;
    root {folder}/www;
    index index.html index.json;
    location /moved {{ return 302 /hello.txt; }}
  }}
}}
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def openssl(*words, folder):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_certificates(folder):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", "ca.key", "-out",
            "ca.pem", "-subj", "/CN=web test", "-addext", "basicConstraints=critical,CA:TRUE", folder=folder)
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj",
            "/CN=" + NAMES[0], folder=folder)
    (folder / "san").write_text("subjectAltName=" + ",".join(f"DNS:{n}" for n in NAMES) + "\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san",
            "-out", "server.pem", folder=folder)


def make_wheel(www):
    """A package of Python's, in an index as PEP 503 has it."""
    name, info = "wheelhouse_test", "wheelhouse_test-1.0.dist-info"
    files = {f"{name}.py": "answer = 42\n", f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()},{len(t)}\n"
                     for n, t in files.items())
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    folder = www / "simple" / "wheelhouse-test"
    folder.mkdir(parents=True)
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        for n, t in files.items():
            z.writestr(n, t)
    folder.joinpath("index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>\n')


def make_npm_package(www, base):
    name = "parcel-test"
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as t:
        for path, text in (("package/package.json", json.dumps({"name": name, "version": "1.0.0", "main": "index.js"})),
                           ("package/index.js", "module.exports = () => 42;\n")):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o644
            t.addfile(entry, io.BytesIO(text.encode()))
    folder = www / name
    folder.mkdir()
    (folder / f"{name}-1.0.0.tgz").write_bytes(data.getvalue())
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data.getvalue()).digest()).decode()
    (folder / "index.json").write_text(json.dumps({
        "name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
            "name": name, "version": "1.0.0", "main": "index.js",
            "dist": {"tarball": f"{base}/{name}/{name}-1.0.0.tgz", "integrity": integrity}}}}))


def make_repository(www, folder):
    git = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t",
           "GIT_COMMITTER_EMAIL": "t@t"}

    def run(*words, cwd):
        subprocess.run(["git", *words], cwd=cwd, env=git, check=True, capture_output=True)
    work = folder / "work"
    work.mkdir()
    run("init", "-q", "-b", "main", cwd=work)
    (work / "README").write_text("cloned\n")
    run("add", "README", cwd=work)
    run("commit", "-q", "-m", "first", cwd=work)
    run("clone", "-q", "--bare", str(work), str(www / "project.git"), cwd=folder)
    run("update-server-info", cwd=www / "project.git")


def make_deb(www, folder):
    tree = folder / "deb"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text("Package: crate-test\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t>\nDescription: test\n")
    apt = www / "debian"
    apt.mkdir()
    deb = apt / "crate-test_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", str(tree), str(deb)], check=True, capture_output=True)
    control = (tree / "DEBIAN" / "control").read_text()
    data = deb.read_bytes()
    packages = control + f"Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    (apt / "Packages").write_text(packages)
    (apt / "Packages.gz").write_bytes(gzip.compress(packages.encode()))


class Web:
    names = NAMES

    def __init__(self, folder):
        self.folder = Path(folder)
        self.tls, self.plain = free_ports(2)

    def __enter__(self):
        www = self.folder / "www"
        www.mkdir()
        make_certificates(self.folder)
        (www / "hello.txt").write_text("hello from outside\n")
        (www / "big.txt").write_bytes(b"x" * 1000000)
        make_wheel(www)
        make_npm_package(www, self.url("", "npm.test"))
        make_repository(www, self.folder)
        if shutil.which("dpkg-deb"):
            make_deb(www, self.folder)
        conf = self.folder / "nginx.conf"
        conf.write_text(NGINX.format(folder=self.folder, tls=self.tls, plain=self.plain, user="user root;\n" if os.geteuid() == 0 else ""))
        self.process = subprocess.Popen(["/usr/sbin/nginx", "-c", str(conf), "-p", str(self.folder), "-e", str(self.folder / "error.log")],
                                        stderr=subprocess.PIPE, start_new_session=True)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.tls), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(self.process.stderr.read().decode()) from None
                time.sleep(0.02)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)

    def url(self, path, name=NAMES[0], scheme="https"):
        return f"{scheme}://{name}:{self.tls if scheme == 'https' else self.plain}{path}"

    def config(self, ca=None):
        """ca: where its authority's certificate is readable for who reads this configuration."""
        return ("resolve:\n" + "".join(f"  {n}: [127.0.0.1]\n" for n in (*NAMES, "other.test")) +
                f"upstream_ca: {ca or self.folder / 'ca.pem'}\n")

    def rules(self, *names, scheme="https"):
        """Requests to these names: TLS is opened to see them."""
        return [word for n in names or NAMES
                for word in ("--allow", f"GET,HEAD,POST {self.url('/*', n, scheme)} within=127.0.0.0/8")]

    def requests(self):
        return (self.folder / "access.log").read_text().splitlines()


