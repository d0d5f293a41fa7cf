# SPDX-License-Identifier: Apache-2.0
"""Opened TLS with real clients and a real server: curl, git, pip, Node, urllib, requests, httpx and aiohttp reach nginx through the proxy,
which adds a credential that none of them holds; and where that secret is afterwards: nowhere but upstream and in locked memory."""
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import certs
import cloche
import egress
import pytest

SECRET = "s3cr3t-t0ken-0123456789"
PYTHON = "/usr/bin/python3"


class Nginx:
    """nginx on a free port of loopback with TLS for api.test and other.test, a package index, a git repository, an echo."""

    CONFIG = """
        {user} daemon off; worker_processes 1; pid {f}/pid; error_log {f}/error.log;
        events {{ }}
        http {{
            access_log off; client_body_temp_path {f}/t1; proxy_temp_path {f}/t2; fastcgi_temp_path {f}/t3; uwsgi_temp_path {f}/t4;
            scgi_temp_path {f}/t5; types {{ text/html html; }}
            log_format seen '$server_name $request_method $uri [$args] [$http_authorization] $server_protocol';
            server {{
                listen 127.0.0.1:{port} ssl http2; server_name api.test; root {f}/www; autoindex on;
                ssl_certificate {pem}; ssl_certificate_key {key};
                access_log {f}/access.log seen;
                location /echo {{ default_type text/plain; return 200 "auth=[$http_authorization] args=[$args] method=$request_method\\n"; }}
                location /away {{ return 302 https://other.test:{port}/echo; }}
                location /down {{ return 302 http://api.test:{port}/echo; }}
            }}
            server {{
                listen 127.0.0.1:{port} ssl http2; server_name other.test;
                ssl_certificate {other_pem}; ssl_certificate_key {other_key};
                access_log {f}/access.log seen;
                location / {{ default_type text/plain; return 200 "other auth=[$http_authorization]\\n"; }}
            }}
        }}"""

    def __init__(self, folder, authority):
        self.folder = Path(folder)
        with egress.socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        pem, key = authority.leaf("api", "DNS:api.test")
        other_pem, other_key = authority.leaf("other", "DNS:other.test")
        config = self.folder / "nginx.conf"
        config.write_text(self.CONFIG.format(f=self.folder, user="user root;" if os.geteuid() == 0 else "", port=self.port, pem=pem, key=key, other_pem=other_pem, other_key=other_key))
        (self.folder / "access.log").touch()
        self.index()
        self.repository()
        self.process = subprocess.Popen(["/usr/sbin/nginx", "-e", self.folder / "error.log", "-c", config], stderr=subprocess.DEVNULL)
        for _ in range(400):
            try:
                egress.socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                assert self.process.poll() is None, (self.folder / "error.log").read_text()
                time.sleep(0.02)
        raise AssertionError("nginx does not listen")

    def index(self):
        """A package index with one wheel, tiny-1.0."""
        at = self.folder / "www" / "simple" / "tiny"
        at.mkdir(parents=True)
        name = "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(at / name, "w") as z:
            z.writestr("tiny.py", "ANSWER = 42\n")
            z.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
            z.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            z.writestr("tiny-1.0.dist-info/RECORD", "")
        (at / "index.html").write_text(f'<!DOCTYPE html><a href="{name}">{name}</a>')

    def repository(self):
        """One commit, as files that git's plain HTTP reads."""
        work, bare = self.folder / "work", self.folder / "www" / "r.git"
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}
        for command in (f"git init -q {work}", f"git -C {work} -c user.name=x -c user.email=x@x.test commit -q --allow-empty -m first",
                        f"git clone -q --bare {work} {bare}", f"git -C {bare} update-server-info"):
            subprocess.run(command.split(), check=True, env=env)

    def seen(self):
        return (self.folder / "access.log").read_text().splitlines()

    def close(self):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return certs.Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def nginx(tmp_path_factory, authority):
    if not os.path.exists("/usr/sbin/nginx"):
        pytest.skip("nginx is not installed")
    n = Nginx(tmp_path_factory.mktemp("nginx"), authority)
    yield n
    n.close()


@pytest.fixture
def route(nginx, authority, tmp_path):
    """route(header or query): a proxy that adds the credential at api.test, and how a client finds it (environment)."""
    running = []

    def start(rules="", **key):
        key = {"name": "key", "host": "api.test", "port": nginx.port, "value": f"Bearer {SECRET}", **(key or {"header": "Authorization"})}
        e = egress.Egress(rules=f"allow api.test:{nginx.port} within=127.0.0.0/8\ncredential key\n{rules}", credentials=[key],
                          resolve={"api.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}, upstream_ca=authority.text)
        running.append(e.__enter__())
        ca = tmp_path / "sandbox.pem"
        ca.write_text(e.ca)
        e.env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HTTPS_PROXY": e.url, "https_proxy": e.url, "HTTP_PROXY": e.url,
                 "http_proxy": e.url, **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
                                                       "PIP_CERT", "GIT_SSL_CAINFO"), str(ca))}
        e.at = f"https://api.test:{nginx.port}"
        e.before = len(nginx.seen())
        e.seen = lambda: nginx.seen()[e.before:]
        return e
    yield start
    for e in running:
        e.close()


def run(e, *command, **options):
    done = subprocess.run(command, env={**e.env, **options.pop("env", {})}, capture_output=True, text=True, timeout=60, **options)
    assert SECRET not in done.stdout + done.stderr
    return done


NODE = """
const [proxy, at] = [new URL(process.env.HTTPS_PROXY), new URL(process.argv[1])];
require('http').request({host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: at.host, headers: {Host: at.host}}).on('connect', (r, socket) => {
  const agent = new (require('https').Agent)();
  agent.createConnection = () => require('tls').connect({socket, servername: at.hostname, ALPNProtocols: ['h2', 'http/1.1']});
  require('https').get(at, {agent}, r => r.pipe(process.stdout));
}).end();
"""
AIOHTTP = """
import aiohttp, asyncio, ssl, sys
async def main():
    async with aiohttp.ClientSession(trust_env=True) as s, s.get(sys.argv[1]) as r:
        print(await r.text())
asyncio.run(main())
"""
CLIENTS = {
    "curl": lambda at: ("curl", "-sS", at),
    "curl-http2": lambda at: ("curl", "-sS", "--http2", at),
    "urllib": lambda at: (PYTHON, "-c", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())", at),
    "requests": lambda at: (PYTHON, "-c", "import sys, requests; print(requests.get(sys.argv[1]).text)", at),
    "httpx": lambda at: (PYTHON, "-c", "import sys, httpx; print(httpx.get(sys.argv[1]).text)", at),
    "aiohttp": lambda at: (PYTHON, "-c", AIOHTTP, at),
    "node": lambda at: ("node", "-e", NODE, at),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_real_clients_get_the_answer_and_not_the_secret(name, route):
    command = CLIENTS[name](f"{'{at}'}/echo?x=1")
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    if name in ("requests", "httpx", "aiohttp") and subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True).returncode:
        pytest.skip(f"python3-{name} is not installed")
    e = route()
    done = run(e, *(w.replace("{at}", e.at) for w in command))
    e.flush()
    assert done.returncode == 0, (done, e.records)
    assert done.stdout.strip() == f"auth=[{'*' * len('Bearer ' + SECRET)}] args=[x=1] method=GET"
    assert e.seen() == [f"api.test GET /echo [x=1] [Bearer {SECRET}] HTTP/1.1"]


def test_git_clones(route, tmp_path):
    e = route()
    done = run(e, "git", "clone", "-q", f"{e.at}/r.git", tmp_path / "clone", env={"GIT_TERMINAL_PROMPT": "0"})
    assert done.returncode == 0, done
    assert "first" in run(e, "git", "-C", tmp_path / "clone", "log", "--oneline").stdout
    assert len(e.seen()) > 2 and all(f"[Bearer {SECRET}]" in line for line in e.seen())
    assert not any(SECRET.encode() in p.read_bytes() for p in (tmp_path / "clone").rglob("*") if p.is_file())


def test_pip_installs_from_a_private_index(route, tmp_path):
    e = route(header="Authorization")
    done = run(e, PYTHON, "-m", "pip", "install", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "-q", "--proxy", e.url,
               "--cert", e.env["PIP_CERT"], "--index-url", f"{e.at}/simple/", "--target", tmp_path / "site", "tiny")
    assert done.returncode == 0, done
    assert run(e, PYTHON, "-c", "import tiny; print(tiny.ANSWER)", env={"PYTHONPATH": str(tmp_path / "site")}).stdout == "42\n"
    assert e.seen() and all(f"[Bearer {SECRET}]" in line for line in e.seen())


def test_a_key_in_the_query(route):
    e = route(query="key", value=SECRET + "/ +")
    done = run(e, "curl", "-sS", f"{e.at}/echo?a=1&key=mine&k%65y=too")
    assert done.stdout.strip() == f"auth=[] args=[a=1&key={'*' * (len(SECRET) + 9)}] method=GET"
    assert e.seen() == [f"api.test GET /echo [a=1&key={SECRET}%2F%20%2B] [-] HTTP/1.1"]


def test_PX_13_the_clients_own_fields_do_not_arrive(route):
    e = route()
    done = run(e, "curl", "-sS", "-u", "me:mine", "-H", "Connection: authorization", "-H", "Proxy-Authorization: mine", f"{e.at}/echo")
    assert done.returncode == 0 and e.seen() == [f"api.test GET /echo [-] [Bearer {SECRET}] HTTP/1.1"]


def test_PX_15_a_redirect_takes_no_credential_along(route, nginx):
    e = route(f"allow https://other.test:{nginx.port}/* within=127.0.0.0/8")
    done = run(e, "curl", "-sSL", "--location-trusted", "-H", "X-Mine: 1", f"{e.at}/away")
    assert done.stdout == "other auth=[]\n", done
    assert e.seen() == [f"api.test GET /away [-] [Bearer {SECRET}] HTTP/1.1", "other.test GET /echo [-] [-] HTTP/1.1"]


def test_PX_16_a_redirect_to_http_is_refused(route):
    e = route()
    done = run(e, "curl", "-sSL", "-o", "/dev/null", "-w", "%{http_code}", f"{e.at}/down")
    assert done.stdout == "403" and len(e.seen()) == 1, done


def test_a_client_that_does_not_trust_the_authority_is_told_so_in_the_record(route):
    e = route()
    done = run(e, "curl", "-sS", f"{e.at}/echo", env={"CURL_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt"})
    assert done.returncode == 60 and not e.seen(), done
    e.wait_for(lambda t: t.open == 0)
    assert any("does not trust this sandbox's certificate authority" in r.why for r in e.records), e.records


# ------------------------------------------------------------------------------------------------------- where the secret is


def mappings(pid):
    """[(start, end, flags)] of a process's readable memory."""
    found = []
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if len(words) >= 5 and "-" in words[0] and len(words[1]) == 4:
            start, end = (int(x, 16) for x in words[0].split("-"))
            readable, name = words[1][0] == "r", words[-1]
        elif words[0] == "VmFlags:" and readable and not name.startswith("[v"):
            found.append((start, end, set(words[1:])))
    return found


def test_PX_23_the_secret_is_in_locked_memory_only_and_in_no_text(route):
    cloche.need("root")
    e = route()
    for _ in range(3):
        assert run(e, "curl", "-sS", f"{e.at}/echo").returncode == 0
    e.wait_for(lambda t: t.open == 0)
    pid, places, unlocked = e.process.pid, 0, []
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for start, end, flags in mappings(pid):
            memory.seek(start)
            data = memory.read(end - start)
            if SECRET.encode() in data:
                places += 1
                if not {"lo", "dd"} <= flags:
                        unlocked += [(hex(start + m.start()), data[max(m.start() - 60, 0):m.end() + 20])
                                 for m in re.finditer(SECRET.encode(), data)]
    assert places and not unlocked, unlocked
    assert SECRET not in str(e.records)
    for name in ("environ", "cmdline", "status", "comm"):
        assert SECRET.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    e.close()
    assert SECRET not in e.errors


def test_PX_23_no_core_and_no_debugger(route, tmp_path):
    cloche.need("root")
    e = route()
    pid = e.process.pid
    soft, hard = re.search(r"Max core file size +(\S+) +(\S+)", Path(f"/proc/{pid}/limits").read_text()).groups()
    assert int(soft) <= 1 and int(hard) <= 1  # 1: also not to a program that takes cores
    assert Path(f"/proc/{pid}/mem").stat().st_uid == 0
    other = textwrap.dedent(f"""
        import os
        os.setgid(65534); os.setuid(65534)
        try:
            open("/proc/{pid}/mem", "rb")
        except PermissionError:
            print("refused")
        """)
    assert subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stdout == "refused\n"
    e.process.send_signal(11)
    assert e.process.wait(20) == -11
    assert not list(Path("/").glob("core*"))
