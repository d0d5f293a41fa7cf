# SPDX-License-Identifier: Apache-2.0
"""Published clients in a sandbox with a network policy: each gets what its rules allow, through opened TLS, from a real server
on loopback; and each is refused by name under an empty policy. Then two package managers from where this machine gets its
packages."""
import base64
import hashlib
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import urllib.parse

import certs
import cloche
import egress
import pydeps
import pytest
import registry as registries
import shape
import web

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

ROOM = ["--timeout", "120s", "--memory", "1g", "--pids-limit", "256", "--cpus", "2"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    cloche.need("web")
    with web.Web(tmp_path_factory.mktemp("web")) as w:
        yield w


@pytest.fixture
def ask(server, config):
    """Run a shell script under rules of the server's names, or under none."""
    config(server.config())

    def run(script, *rules, options=()):
        words = rules if rules else ["--deny", "never.test"]
        r = cloche.run(["bash", "--network", "allow", *words, *ROOM, *options, "-c", script])
        shape.check_shape(r)
        return r
    return run


NODE_FETCH = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))"
JAVA = """
import java.net.URI;
import java.net.http.*;
public class Get {
  public static void main(String[] a) throws Exception {
    System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(),
                                                     HttpResponse.BodyHandlers.ofString()).body());
  }
}
"""
URLLIB = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1]).read().decode())"
REQUESTS = "import sys, requests; sys.stdout.write(requests.get(sys.argv[1]).text)"
HTTPX = "import sys, httpx; sys.stdout.write(httpx.get(sys.argv[1]).text)"
AIOHTTP = """
import aiohttp, asyncio, sys
async def main():
    async with aiohttp.ClientSession() as s, s.get(sys.argv[1]) as r:
        sys.stdout.write(await r.text())
asyncio.run(main())
"""
APT = """
mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial /tmp/apt/etc /workspace/apt
cd /workspace/apt; : >/tmp/apt/status; echo 'deb [trusted=yes] URL ./' >/tmp/apt/sources
apt-get -q -o Dir::State=/tmp/apt -o Dir::State::status=/tmp/apt/status -o Dir::Cache=/tmp/apt/cache -o Dir::Etc=/tmp/apt/etc \
  -o Dir::Etc::sourcelist=/tmp/apt/sources -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User= -o Acquire::Retries=0 \
  -o Dir::Log=/tmp/apt -o Acquire::Languages=none -o Dir::Bin::methods=/usr/lib/apt/methods update -o APT::Update::Error-Mode=any >&2 &&
apt-get -q -o Dir::State=/tmp/apt -o Dir::State::status=/tmp/apt/status -o Dir::Cache=/tmp/apt/cache -o Dir::Etc=/tmp/apt/etc \
  -o Dir::Etc::sourcelist=/tmp/apt/sources -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User= download crate-test >&2 &&
dpkg-deb -f crate-test_1.0_all.deb Package
"""

# name: (what has to be here, host, path, script with URL in it, what it prints)
HELLO = "hello from outside\n"
CLIENTS = {
    "curl": ("curl", "web.test", "/hello.txt", "curl -sSf URL", HELLO),
    "curl follows": ("curl", "web.test", "/moved", "curl -sSfL URL", HELLO),
    "curl without a proxy": ("curl", "web.test", "/hello.txt", "curl -sSf --noproxy '*' URL", HELLO),
    "wget": ("wget", "web.test", "/hello.txt", "wget -qO- --tries=1 URL", HELLO),
    "urllib": ("python3", "web.test", "/hello.txt", f"/usr/bin/python3 -c '{URLLIB}' URL", HELLO),
    "requests": ("pydeps", "web.test", "/hello.txt", f"python3 -c '{REQUESTS}' URL", HELLO),
    "httpx": ("pydeps", "web.test", "/hello.txt", f"python3 -c '{HTTPX}' URL", HELLO),
    "aiohttp": ("pydeps", "web.test", "/hello.txt", f"python3 -c '{AIOHTTP}' URL", HELLO),
    "node fetch": ("node", "web.test", "/hello.txt", f"node -e '{NODE_FETCH}' URL", HELLO),
    "java": ("java", "web.test", "/hello.txt", f"cat >Get.java <<'end'\n{JAVA}\nend\njava -XX:TieredStopAtLevel=1 Get.java URL", HELLO),
    "git": ("git", "git.test", "/project.git", "git clone -q URL /workspace/p && cat /workspace/p/README", "cloned\n"),
    "apt": ("apt-get", "apt.test", "/debian", APT, "crate-test\n"),
    "pip": ("python3", "pypi.test", "/simple", "/usr/bin/python3 -m venv /workspace/v && /workspace/v/bin/pip install -q --no-cache-dir "
            "--disable-pip-version-check --retries 0 --index-url URL wheelhouse-test >&2 && "
            "/workspace/v/bin/python -c 'import wheelhouse_test; print(wheelhouse_test.answer)'", "42\n"),
    "npm": ("npm", "npm.test", "", "cd /workspace && npm install --silent --no-audit --no-fund --fetch-retries 0 --registry URL parcel-test "
            ">&2 && node -e 'console.log(require(\"parcel-test\")())'", "42\n"),
}


def prepared(name, server, scheme="https"):
    program, host, path, script, printed = CLIENTS[name]
    options = []
    if program == "pydeps":
        pydeps.need("python3")
        options = ["--venv", pydeps.folder()]
    elif not shutil.which(program, path="/usr/bin"):
        pytest.skip(f"{program}: not here")
    if program == "apt-get" and not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb: not here")
    return host, script.replace("URL", server.url(path, host, scheme)), printed, options


@pytest.mark.parametrize("name", CLIENTS)
def test_client_gets_what_is_allowed(name, server, ask):
    host, script, printed, options = prepared(name, server)
    before = len(server.requests())
    r = ask(script, *server.rules(host), options=options)
    assert (r.out.decode(), r.exit_code, r.error_code) == (printed, 0, None), r
    assert r.network["denied"] == [] and r.network["allowed"] > 0 and r.network["bytes_received"] > 0
    assert len(server.requests()) > before


@pytest.mark.parametrize("name", CLIENTS)
def test_client_is_refused_by_name(name, server, ask):
    host, script, printed, options = prepared(name, server)
    before = len(server.requests())
    r = ask(script, options=options)
    assert r.exit_code not in (0, None) and r.error_code == "SANDBOX_NETWORK_DENIED", r
    assert printed.encode() not in r.out and r.limits_hit == ["network_denied"]
    assert host in {d["host"] for d in r.network["denied"]} and host in r.model_message
    assert len(server.requests()) == before and r.network["allowed"] == 0


@pytest.mark.parametrize("name", ["curl", "urllib", "node fetch", "git"])
def test_client_in_clear(name, server, ask):
    """HTTP is seen as it is; nothing is trusted for it."""
    host, script, printed, _ = prepared(name, server, "http")
    r = ask(script, *server.rules(host, scheme="http"))
    assert (r.out.decode(), r.exit_code) == (printed, 0), r


@pytest.mark.needs("java")
def test_java_that_knows_no_proxy(server, ask):
    """In clear, caught on a port that is none of the usual ones."""
    script = f"cat >Get.java <<'end'\n{JAVA}\nend\njava -XX:TieredStopAtLevel=1 Get.java URL"
    script = script.replace("URL", server.url("/hello.txt", scheme="http"))
    assert ask(script, *server.rules("web.test", scheme="http")).out.decode() == HELLO
    r = ask(script)
    assert r.error_code == "SANDBOX_NETWORK_DENIED" and r.network["denied"][0]["host"] == "web.test", r


def java_store(certificates):
    """The file of OpenJDK's JavaKeyStore, made anew."""
    def text(t):
        return struct.pack(">H", len(t)) + t.encode()
    data = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for i, der in enumerate(certificates):
        data += struct.pack(">I", 2) + text(f"cloche-{i}") + bytes(8) + text("X.509") + struct.pack(">I", len(der)) + der
    return data + hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + data).digest()


@pytest.mark.needs("java")
def test_what_java_trusts_is_what_all_others_trust(server, ask):
    r = ask("cmp /etc/cloche/cacerts /etc/ssl/certs/java/cacerts && base64 -w0 /etc/cloche/cacerts && echo && cat /etc/cloche/ca-bundle.pem",
            *server.rules("web.test"), options=["--max-output", "2m"])
    store, _, bundle = r.out.decode().partition("\n")
    certificates = [ssl.PEM_cert_to_DER_cert(c) for c in re.findall("-----BEGIN CERT.*?END CERTIFICATE-----", bundle, re.S)]
    assert r.exit_code == 0 and len(certificates) > 2 and base64.b64decode(store) == java_store(certificates)
    r = ask("keytool -list -storepass changeit -cacerts | grep -c trustedCertEntry", *server.rules("web.test"))
    assert int(r.out) == len(certificates) and b"tampered" not in r.err, r
    closed = ask("test -e /etc/cloche/cacerts", "--allow", f"web.test:{server.tls} within=127.0.0.0/8")
    assert closed.exit_code == 1, "without TLS that is opened nothing is put in the place of the image's"


def test_tls_that_is_not_opened(server, ask):
    """A rule for a host only: the server's own certificate arrives, end to end, and is not trusted inside."""
    url = server.url("/hello.txt")
    rule = ["--allow", f"web.test:{server.tls} within=127.0.0.0/8"]
    assert ask(f"curl -sS {url}", *rule).exit_code == 60  # CURLE_PEER_FAILED_VERIFICATION
    r = ask(f"curl -sSk -w '%{{certs}}' {url} | tail -n +2 | openssl x509 -noout -issuer", *rule)
    assert b"CN = web test" in r.out, r


def test_a_path_that_is_not_allowed(server, ask):
    rules = ["--allow", f"GET {server.url('/simple/*')} within=127.0.0.0/8"]
    r = ask(f"curl -sS -o /dev/stderr -w '%{{http_code}}' {server.url('/hello.txt')}; exit 1", *rules)
    assert r.out == b"403" and b"network_denied" in r.err and r.error_code == "SANDBOX_NETWORK_DENIED"
    assert r.network["denied"] == [{"host": "web.test", "port": server.tls, "count": 1}]


def test_names_that_are_not_allowed_are_not_resolved(server, ask):
    r = ask("getent ahosts other.test; getent ahosts web.test | awk '{print $1}' | sort -u", *server.rules("web.test"))
    address = r.out.decode().strip()
    assert address.startswith(("198.18.", "198.19.")) and "\n" not in address
    assert {d["host"] for d in r.network["denied"]} == {"other.test"}


@pytest.mark.parametrize("how", ["--noproxy '*'", "--proxy http://127.0.0.1:3128 --noproxy ''", "--socks5 127.0.0.1:3128 --noproxy ''"])
def test_by_address_nothing_is_reached(how, server, ask):
    """The server listens on this machine's loopback, where nobody inside gets to by an address. By the proxy it is refused,
    without it there is a loopback of the sandbox's own."""
    before = len(server.requests())
    script = f"for a in 127.0.0.1 0.0.0.0 127.0.1.1 localhost; do curl -sS -m 5 {how} http://$a:{server.plain}/hello.txt; done; exit 1"
    r = ask(script, *server.rules(), "--allow", f"web.test:{server.plain} within=127.0.0.0/8")
    assert b"hello" not in r.out and len(server.requests()) == before
    if "noproxy '*'" in how:
        assert r.error_code == "COMMAND_FAILED" and r.network["denied"] == []
    else:
        assert r.error_code == "SANDBOX_NETWORK_DENIED" and {d["port"] for d in r.network["denied"]} == {server.plain}


def test_socks(server, ask):
    url = server.url("/hello.txt", scheme="http")
    r = ask(f"curl -sS --socks5-hostname 127.0.0.1:3128 {url}", *server.rules("web.test", scheme="http"))
    assert r.out.decode() == HELLO, r
    r = ask(f"curl -sS --socks5-hostname 127.0.0.1:3128 {url}")
    assert r.exit_code == 97 and r.error_code == "SANDBOX_NETWORK_DENIED"  # CURLE_PROXY


def test_rootless(server, user):
    """The same by an ordinary user, whose own configuration it is."""
    uid, env = user
    folder = env["XDG_CONFIG_HOME"] + "/cloche"
    os.makedirs(folder, exist_ok=True)
    shutil.copy(server.folder / "ca.pem", folder)
    with open(folder + "/cloche.yaml", "w") as f:
        f.write(server.config(folder + "/ca.pem"))
    script = f"curl -sSf {server.url('/hello.txt')} && node -e '{NODE_FETCH}' {server.url('/hello.txt')}"
    r = cloche.run(["bash", "--best-effort", "--network", "allow", *server.rules("web.test"), *ROOM, "-c", script], uid=uid,
                   env={**env, "CLOCHE_DIRECT": "1"})
    assert (r.out.decode(), r.exit_code) == (HELLO * 2, 0), r
    r = cloche.run(["bash", "--best-effort", "--network", "allow", *ROOM, "-c", script], uid=uid, env={**env, "CLOCHE_DIRECT": "1"})
    assert r.error_code == "SANDBOX_NETWORK_DENIED" and r.network["denied"][0]["host"] == "web.test"


def test_a_registry_is_read_and_not_written(config, tmp_path):
    """skopeo inside and docker-registry outside: an image comes by GET; a push is another method, and refused by it."""
    registries.need("docker-registry", "skopeo")
    config("resolve:\n  registry.test: [127.0.0.1]\n")
    with registries.Registry(tmp_path / "registry") as one:
        registries.push(registries.Image(layers=2).layout(tmp_path / "image"), one, "library/here:1")
        copy = "skopeo --tmpdir /tmp --insecure-policy copy -q --src-tls-verify=false --dest-tls-verify=false"
        at = f"docker://registry.test:{one.port}/library"
        r = cloche.run(["bash", "--network", "allow", "--allow", f"GET,HEAD http://registry.test:{one.port}/v2/* within=127.0.0.0/8", *ROOM, "-c",
                        f"{copy} {at}/here:1 dir:/workspace/i && ls /workspace/i && {copy} dir:/workspace/i {at}/new:1"])
        shape.check_shape(r)
        assert r.exit_code == 1 and len(r.out.split()) == 5 and b"manifest.json" in r.out, r  # two layers, config, manifest, version
        assert r.error_code == "SANDBOX_NETWORK_DENIED" and {d["host"] for d in r.network["denied"]} == {"registry.test"}
        assert registries.skopeo("list-tags", "--tls-verify=false", f"docker://{one.host}/library/here")
        with pytest.raises((AssertionError, subprocess.CalledProcessError)):
            registries.skopeo("list-tags", "--tls-verify=false", f"docker://{one.host}/library/new")


SECRET = "of-the-operator-0123456789abcdef"


def test_a_credential_is_added_outside(config, tmp_path):
    """`--credential`: the server gets the secret, the code neither has it nor sees it in an answer; no other host gets it."""
    authority = certs.Authority(tmp_path)
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "secret").chmod(0o600)
    with egress.Server(egress.http_echo, tls=authority.server("api", "DNS:api.test,DNS:other.test")) as s:
        config(f"resolve:\n  api.test: [127.0.0.1]\n  other.test: [127.0.0.1]\nupstream_ca: {authority.pem}\ncredentials:\n  api:\n"
               f"    host: api.test\n    port: {s.port}\n    header: Authorization\n    value: Bearer {{}}\n    file: {tmp_path}/secret\n")
        allow = [w for n in ("api", "other") for w in ("--allow", f"GET https://{n}.test:{s.port}/* within=127.0.0.0/8")]
        r = cloche.run(["bash", "--network", "allow", *allow, "--credential", "api", *ROOM, "-c",
                        f"curl -sSf -H 'Authorization: mine' https://api.test:{s.port}/a && curl -sSf https://other.test:{s.port}/b; "
                        "env; cat /proc/*/environ /etc/cloche/* 2>/dev/null"])
        shape.check_shape(r)
        assert (r.reason, r.error_code, r.network["denied"]) == ("exited", None, []), r
        asked = {head.split()[1]: head for head, _ in s.requests}
    assert f"Authorization: Bearer {SECRET}" in asked["/a"] and "mine" not in asked["/a"]
    assert "Authorization" not in asked["/b"] and SECRET.encode() not in r.stdout + r.stderr
    assert b"GET /a" in r.out and b"GET /b" in r.out


def test_python_module(server, ask, monkeypatch):
    """cloche.run_python(..., network="allow", allow=[...]) of python/cloche.py."""
    code = f"import urllib.request as u; print(u.urlopen('{server.url('/hello.txt', scheme='http')}').read().decode(), end='')"
    rule = f"GET {server.url('/*', scheme='http')} within=127.0.0.0/8"
    words = [a for a in cloche.start(["run", "true"], prefix=()).args if a in ("nsenter", "-t", "-m") or a.isdigit()]
    script = ("import sys; sys.path.insert(0, sys.argv[1]); import cloche\n"
              f"r = cloche.run_python({code!r}, network='allow', allow=[{rule!r}], timeout='30s')\n"
              f"n = cloche.run_python({code!r}, network='allow', timeout='30s')\n"
              "print([r.ok, r.stdout, n.error_code, n.network['denied'][0]['host']])")
    p = subprocess.run([*words, sys.executable, "-c", script, str(cloche.TOP / "python")], capture_output=True, text=True,
                       env={**cloche.environment(), "CLOCHE": cloche.binary()}, timeout=120)
    assert p.stdout == f"{[True, HELLO, 'SANDBOX_NETWORK_DENIED', 'web.test']}\n", p


# ------------------------------------------------------------------------- where this machine gets its packages


def hosts_of(*urls):
    """Rules for these hosts as this machine reaches them, which may be by a private address."""
    words = []
    for host in dict.fromkeys(urllib.parse.urlsplit(u).hostname for u in urls):
        try:
            addresses = {a[4][0] for a in socket.getaddrinfo(host, 443, socket.AF_INET)}
        except OSError as e:
            pytest.skip(f"registry: its name is not found: {e}")
        words += ["--allow", f"{host} " + " ".join(f"within={a}/32" for a in sorted(addresses))]
    return words


def output(*command):
    p = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    return p.stdout.strip() if p.returncode == 0 else ""


def test_pip_installs_from_this_machines_index():
    """Index and files as pip itself has them."""
    index = output("/usr/bin/python3", "-c", "from pip._internal.models.index import PyPI; from pip._internal.configuration import "
                   "Configuration as C; c = C(isolated=False); c.load(); print(dict(c.items()).get('global.index-url', PyPI.simple_url)); "
                   "print('https://' + PyPI.file_storage_domain)").split()
    if not index:
        pytest.skip("pip: does not say where its packages come from")
    reached = subprocess.run(["/usr/bin/python3", "-m", "pip", "download", "--no-deps", "--no-cache-dir", "-q", "-d", "/dev/shm/cloche-none", "six"],
                             capture_output=True, text=True, timeout=120)
    shutil.rmtree("/dev/shm/cloche-none", ignore_errors=True)
    if reached.returncode:
        pytest.skip("pip: this machine reaches no index: " + (reached.stderr.strip().splitlines() or ["?"])[-1])
    script = ("/usr/bin/python3 -m venv /workspace/v && /workspace/v/bin/pip install --no-cache-dir -q --disable-pip-version-check --retries 1 "
              f"--index-url {index[0]} six >&2 && /workspace/v/bin/python -c 'import six; print(six.moves.range(3))'")
    r = cloche.run(["bash", "--network", "allow", *hosts_of(*index), *ROOM, "-c", script])
    assert (r.out, r.exit_code) == (b"range(0, 3)\n", 0), r
    r = cloche.run(["bash", "--network", "allow", *ROOM, "-c", script.replace("--retries 1", "--retries 0")])
    assert r.error_code == "SANDBOX_NETWORK_DENIED" and urllib.parse.urlsplit(index[0]).hostname in r.model_message


@pytest.mark.needs("npm")
def test_npm_installs_from_this_machines_registry():
    registry = output("npm", "config", "get", "registry")
    if not registry.startswith("http") or not output("npm", "view", "--silent", "is-number", "name"):
        pytest.skip("npm: this machine reaches no registry")
    script = (f"cd /workspace && npm install --silent --no-audit --no-fund --registry {registry} is-number >&2 && "
              "node -e 'console.log(require(\"is-number\")(5))'")
    r = cloche.run(["bash", "--network", "allow", *hosts_of(registry), *ROOM, "-c", script])
    assert (r.out, r.exit_code) == (b"true\n", 0), r
