# SPDX-License-Identifier: Apache-2.0
"""A real server, nginx, behind the proxy: files of every size, ranges, compression, kept connections, TLS; and real clients before it."""
import hashlib
import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import certs
import contract
import egress
import pytest

CONFIG = """
daemon off; master_process off; pid {d}/pid; error_log {d}/error.log; user root;
events {{ worker_connections 512; }}
http {{
  access_log {d}/access.log; client_body_temp_path {d}/b; proxy_temp_path {d}/p; fastcgi_temp_path {d}/f; uwsgi_temp_path {d}/u; scgi_temp_path {d}/s;
  client_max_body_size 100m; gzip on; gzip_min_length 1; gzip_types *; keepalive_requests 7;
  server {{
    listen 127.0.0.1:{plain}; listen 127.0.0.1:{secure} ssl; server_name api.test;
    ssl_certificate {certificate}; ssl_certificate_key {key};
    root {d}/www;
    location /moved {{ return 302 http://evil.test/; }}
    location /empty {{ return 204; }}
  }}
}}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def nginx():
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    if not program:
        pytest.skip("nginx is not installed")
    folder = Path(tempfile.mkdtemp(prefix="clo-nginx."))
    authority = certs.Authority(folder)
    certificate, key = authority.leaf("api", "DNS:api.test")
    (folder / "www").mkdir()
    for size in (0, 1, 1000, 70_000, 20_000_000):
        (folder / "www" / str(size)).write_bytes(random.Random(size).randbytes(size))
    (folder / "www" / "text").write_text("all the same\n" * 100_000)
    n = type("Nginx", (), {"plain": free_port(), "secure": free_port(), "authority": authority, "www": folder / "www", "log": folder / "access.log"})
    (folder / "conf").write_text(CONFIG.format(d=folder, plain=n.plain, secure=n.secure, certificate=certificate, key=key))
    with subprocess.Popen([program, "-c", folder / "conf", "-e", folder / "error.log"], stderr=subprocess.PIPE) as p:
        for _ in range(200):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", n.plain)) == 0:
                    break
            assert p.poll() is None, p.stderr.read()
            time.sleep(0.05)
        yield n
        p.terminate()
    shutil.rmtree(folder)


@pytest.fixture
def proxy(nginx, tmp_path):
    rules = f"allow GET,HEAD,POST api.test:{nginx.plain},{nginx.secure} within=127.0.0.0/8"
    with egress.Egress(rules=rules, resolve={"api.test": ["127.0.0.1"]}, upstream_ca=nginx.authority.text) as e:
        (tmp_path / "ca.pem").write_text(e.ca)
        e.bundle = tmp_path / "ca.pem"
        yield e


def curl(e, *arguments):
    done = subprocess.run(["curl", "-sS", "--http1.1", "--cacert", e.bundle, "-x", e.url, *map(str, arguments)], env={"PATH": "/usr/bin:/bin"},
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(params=["http", "https"])
def base(request, nginx):
    return f"{request.param}://api.test:{nginx.secure if request.param == 'https' else nginx.plain}"


def test_files_arrive_as_they_are(proxy, nginx, base):
    for size in (0, 1, 1000, 70_000, 20_000_000):
        assert hashlib.sha256(curl(proxy, f"{base}/{size}")).digest() == hashlib.sha256((nginx.www / str(size)).read_bytes()).digest()
    assert curl(proxy, "--compressed", f"{base}/text") == (nginx.www / "text").read_bytes()
    assert curl(proxy, "-r", "100-199", f"{base}/70000") == (nginx.www / "70000").read_bytes()[100:200]
    assert b"200 OK" in curl(proxy, "-I", f"{base}/1000") and b"HTTP/1.1 204" in curl(proxy, "-i", f"{base}/empty")
    assert b"location: http://evil.test/" in curl(proxy, "-i", f"{base}/moved").lower()


def test_many_requests_of_one_client_each_arrive_once(proxy, nginx, base):
    """nginx ends its connections after 7 requests: the next ones go by another, and none is sent twice."""
    before = len(nginx.log.read_text().splitlines())
    urls = [f"{base}/1000?{i}" for i in range(50)]
    assert curl(proxy, *urls) == (nginx.www / "1000").read_bytes() * 50
    contract.until(lambda: len(nginx.log.read_text().splitlines()) >= before + 50)  # a line is written behind its answer
    lines = nginx.log.read_text().splitlines()[before:]
    assert [line.split('"')[1] for line in lines] == [f"GET /1000?{i} HTTP/1.1" for i in range(50)]


def test_what_nginx_never_sees(proxy, nginx, base):
    before = nginx.log.read_text()
    assert b"network_denied" in curl(proxy, "-X", "DELETE", f"{base}/1000")
    assert nginx.log.read_text() == before
