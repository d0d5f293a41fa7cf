# SPDX-License-Identifier: Apache-2.0
"""The registry client against real peers: docker-registry from Debian, images pushed by skopeo. Docker Hub itself cannot be
reached from everywhere this runs; its names are served by a mirror here."""
import base64
import hashlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time

import pytest
import registry as registries
from registry import Image, Quiet, Registry, Script, TokenServer, check_blobs, digest, pull, push, serve_http, skopeo


def hub(*mirrors, only=True):
    """A configuration in which docker.io's names are these mirrors'."""
    return {"docker.io": {"mirrors": list(mirrors), "only_mirrors": "true" if only else "false"}}


# ------------------------------------------------------------------------------------------------ what an image is


def test_pull_by_tag(registry, image, out):
    """The host's own name, and Docker Hub's by a mirror, give the image that skopeo sees."""
    theirs = json.loads(skopeo("inspect", "--tls-verify=false", f"docker://{registry.host}/library/python:3.12-slim"))
    for name, config in ((f"{registry.host}/library/python:3.12-slim", None), ("python:3.12-slim", hub(registry.url))):
        where = out.with_name(f"out{config is None}")
        a = pull(name, where, registries=config)
        assert a.cause == "NONE" and a.digest == a.manifest_digest == theirs["Digest"]
        assert digest(a.manifest.encode()) == a.digest
        assert [d["digest"] for d in json.loads(a.manifest)["layers"]] == theirs["Layers"] and a.compression == 1
        check_blobs(where, a)


def test_pull_by_digest(registry, image, out):
    a = pull(f"python@{digest(image.manifest)}", out, registries=hub(registry.url))
    assert a.digest == digest(image.manifest)
    a = pull(f"python:no-such-tag@{digest(image.manifest)}", out, registries=hub(registry.url))
    assert a.digest == digest(image.manifest)
    a = pull(f"python@{digest(b'else')}", out, registries=hub(registry.url))
    assert a.cause == "NOT_FOUND"


def test_digest_only(registry, image, out):
    """What `--pull always` asks first."""
    a = pull("python:3.12-slim", out, registries=hub(registry.url), digest_only=1)
    assert a.digest == digest(image.manifest) and not list(out.iterdir())
    assert pull("python:none", out, registries=hub(registry.url), digest_only=1).cause == "NOT_FOUND"


def test_docker_schema2(registry, image, out, tmp_path):
    push(image.layout(tmp_path / "layout"), registry, "v2s2", "--format", "v2s2")
    a = pull(f"{registry.host}/v2s2", out)
    assert a.media_type == "application/vnd.docker.distribution.manifest.v2+json"
    check_blobs(out, a)


def test_zstd_layers(registry, out, tmp_path):
    image = Image(compressed=False, seed=b"zstd")
    push(image.layout(tmp_path / "layout"), registry, "zstd", "--dest-compress-format", "zstd", "--format", "oci")
    a = pull(f"{registry.host}/zstd", out)
    assert a.compression == 2
    check_blobs(out, a)
    assert (out / json.loads(a.manifest)["layers"][0]["digest"]).read_bytes()[:4] == b"\x28\xb5\x2f\xfd"


def test_image_of_umoci(registry, out, tmp_path):
    registries.need("umoci")
    layout = tmp_path / "umoci"
    for args in (["init", "--layout", layout], ["new", "--image", f"{layout}:t"],
                 *(["insert", "--image", f"{layout}:t", __file__, f"/file{i}"] for i in range(45))):
        subprocess.run(["umoci", *args], check=True, capture_output=True)
    push(f"oci:{layout}:t", registry, "umoci")
    a = pull(f"{registry.host}/umoci", out)
    assert a.layers == 45
    check_blobs(out, a)


def test_platforms(registry, out, tmp_path):
    """An index: the entry for the platform, its digest checked; no entry: what there is."""
    import urllib.request

    images = {arch: Image(layers=1, size=1000, architecture=arch, seed=arch.encode()) for arch in ("arm64", "amd64")}
    entries = [{"mediaType": registries.OCI, "digest": digest(b"attestation"), "size": 5,
                "platform": {"os": "unknown", "architecture": "unknown"}}]
    for arch, one in images.items():
        push(one.layout(tmp_path / arch), registry, f"multi:{arch}")
        entries.insert(0, {"mediaType": registries.OCI, "digest": digest(one.manifest), "size": len(one.manifest),
                           "platform": {"os": "linux", "architecture": arch}})
    index = json.dumps({"schemaVersion": 2, "mediaType": registries.INDEX, "manifests": entries[:2]}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{registry.url}/v2/multi/manifests/latest", data=index, method="PUT",
                                                  headers={"Content-Type": registries.INDEX}))
    for platform, arch in (("linux/amd64", "amd64"), ("linux/arm64/v8", "arm64"), ("arm64", "arm64")):
        a = pull(f"{registry.host}/multi", out.with_name(f"out{platform.count('/')}{arch}"), platform=platform)
        assert a.digest == digest(index) and a.index == index.decode()
        assert a.manifest_digest == digest(images[arch].manifest)
    a = pull(f"{registry.host}/multi", out, platform="linux/s390x")
    assert a.cause == "NO_PLATFORM" and "there is one for: linux/amd64, linux/arm64" in a.error


# --------------------------------------------------------------------------------------------------------- no such thing


def test_no_such_tag(registry, out):
    a = pull("python:3.99", out, registries=hub(registry.url))
    assert a.cause == "NOT_FOUND" and a.status == 1 and a.seconds < 5
    assert a.error.startswith("python:3.99: ") and "has no such repository or tag" in a.error
    assert pull(f"{registry.host}/no/such", out).cause == "NOT_FOUND"


def test_bad_names(out):
    for name in ("Python", "a/../b", "x@sha512:00", "", "file:///etc/passwd", "http://h/x"):
        a = pull(name, out)
        assert a.cause == "REFERENCE" and "image name" in a.error


def test_nobody_there(out):
    port = registries.free_port()
    a = pull(f"127.0.0.1:{port}/x", out)
    assert a.cause == "UNREACHABLE" and a.seconds < 10 and "no connection" in a.error
    a = pull("no-such-host.invalid/x", out)
    assert a.cause == "UNREACHABLE" and a.seconds < 10 and "check the name" in a.error


def test_not_a_registry(out):
    class Site(Quiet):
        def do_GET(self):
            self.send_response(200 if "200" in self.path else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"<html")

    server = serve_http(Site)
    try:
        for name in ("x200", "x404"):
            a = pull(f"127.0.0.1:{server.server_address[1]}/{name}", out)
            assert a.cause == "NOT_A_REGISTRY" and "not as a registry" in a.error
    finally:
        server.shutdown()


def test_something_that_is_not_http(out):
    with socket.create_server(("127.0.0.1", 0)) as s:
        import threading

        def serve():
            while True:
                try:
                    c, _ = s.accept()
                except OSError:
                    return
                with c:
                    c.recv(100)
                    c.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 3)
        threading.Thread(target=serve, daemon=True).start()
        a = pull(f"127.0.0.1:{s.getsockname()[1]}/x", out)
        assert a.cause == "NOT_A_REGISTRY"


# ------------------------------------------------------------------------------------------------------------- logins


@pytest.fixture(scope="session")
def private(tmp_path_factory, image):
    """A registry with a password (Basic)."""
    registries.need("docker-registry", "skopeo", "htpasswd")
    where = tmp_path_factory.mktemp("private")
    (where / "users").write_bytes(subprocess.run(["htpasswd", "-nbB", "-C", "4", "ada", "lovelace"], check=True,
                                                 capture_output=True).stdout)
    auth = {"htpasswd": {"realm": "tests", "path": str(where / "users")}}
    with Registry(where / "store", auth=auth, push_options=["--dest-creds", "ada:lovelace"]) as one:
        push(image.layout(where / "image"), one, "secret")
        yield one


def docker_config(folder, content):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return {"DOCKER_CONFIG": str(folder)}


def login(user="ada", password="lovelace"):
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def test_login_missing(private, out, tmp_path):
    a = pull(f"{private.host}/secret", out)
    assert a.cause == "UNAUTHORISED" and f"docker login {private.host}" in a.error


@pytest.mark.parametrize("key", ["{}", "https://{}", "http://{}/v2/"])
def test_login(private, out, tmp_path, key):
    env = docker_config(tmp_path / "c", {"auths": {key.format(private.host): {"auth": login()}}})
    a = pull(f"{private.host}/secret", out, env=env)
    assert a.cause == "NONE"
    check_blobs(out, a)


def test_login_in_home(private, out, tmp_path):
    docker_config(tmp_path / ".docker", {"auths": {private.host: {"username": "ada", "password": "lovelace"}}})
    assert pull(f"{private.host}/secret", out, env={"HOME": str(tmp_path)}).cause == "NONE"
    assert pull(f"{private.host}/secret", out, env={"HOME": str(tmp_path)}, docker_config="").cause == "UNAUTHORISED"


def test_login_wrong(private, out, tmp_path):
    env = docker_config(tmp_path / "c", {"auths": {private.host: {"auth": login(password="byron")}}})
    a = pull(f"{private.host}/secret", out, env=env)
    assert a.cause == "UNAUTHORISED" and "refuses the stored user name or password" in a.error
    assert "byron" not in a.error and login(password="byron") not in a.error


def test_login_of_others(private, out, tmp_path):
    """A login for another host is not sent."""
    env = docker_config(tmp_path / "c", {"auths": {"127.0.0.1": {"auth": login()}, private.host + "0": {"auth": login()}}})
    assert pull(f"{private.host}/secret", out, env=env).cause == "UNAUTHORISED"


def test_login_for_untrusted_names(private, out, tmp_path):
    """A client of the service names the image: the service's logins are used for configured registries only."""
    env = docker_config(tmp_path / "c", {"auths": {private.host: {"auth": login()}}})
    assert pull(f"{private.host}/secret", out, env=env, untrusted=1).cause == "FORBIDDEN"
    assert pull(f"{private.host}/secret", out, env=env, untrusted=1, registries={private.host: {}}).cause == "NONE"


@pytest.mark.parametrize("content, why", [
    ("{", "JSON"), ('{"auths":{"HOST":{"auth":"!!!"}}}', "not base64"), ('{"auths":{"HOST":{"auth":"YWRh"}}}', "USER:PASSWORD"),
    ('{"credsStore":"../../bin/sh"}', "no name of a credential helper"), ('{"credsStore":"not-there"}', "install it"),
])
def test_login_unreadable(private, out, tmp_path, content, why):
    env = docker_config(tmp_path / "c", content.replace("HOST", private.host))
    a = pull(f"{private.host}/secret", out, env=env)
    assert a.cause == "CREDENTIALS" and why in a.error and "config.json" in a.error


def helper(folder, script):
    """docker-credential-test in PATH."""
    folder.mkdir(exist_ok=True)
    program = folder / "docker-credential-test"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


GOOD_HELPER = 'read -r server; [ "$1" = get ] || exit 3; echo "$server" >>"$0.log"\n' \
              'echo "{\\"ServerURL\\":\\"$server\\",\\"Username\\":\\"ada\\",\\"Secret\\":\\"lovelace\\"}"\n'


@pytest.mark.parametrize("key", ["credsStore", "credHelpers"])
def test_credential_helper(private, out, tmp_path, key):
    env = {**helper(tmp_path / "bin", GOOD_HELPER),
           **docker_config(tmp_path / "c", {key: "test" if key == "credsStore" else {private.host: "test"}})}
    assert pull(f"{private.host}/secret", out, env=env).cause == "NONE"
    assert (tmp_path / "bin" / "docker-credential-test.log").read_text() == private.host + "\n"


def test_credential_helper_knows_nothing(private, out, tmp_path):
    """Then the file's own entry counts."""
    env = {**helper(tmp_path / "bin", "echo credentials not found in native keychain; exit 1\n"),
           **docker_config(tmp_path / "c", {"credsStore": "test"})}
    assert pull(f"{private.host}/secret", out, env=env).cause == "UNAUTHORISED"
    docker_config(tmp_path / "c", {"credsStore": "test", "auths": {private.host: {"auth": login()}}})
    assert pull(f"{private.host}/secret", out, env=env).cause == "NONE"


@pytest.mark.parametrize("script, why", [
    ("exit 7\n", "failed: without a word"), ("printf 'locked\\033[31m\\n'; exit 1\n", "failed: locked?[31m"), ("echo '[]'\n", "no login"),
    ("echo '{\"Username\":\"x\",\"Secret\":\"\"}'\n", "no login"), ("yes\n", "more than 65536 bytes"), ("kill -9 $$\n", "failed"),
])
def test_credential_helper_broken(private, out, tmp_path, script, why):
    env = {**helper(tmp_path / "bin", script), **docker_config(tmp_path / "c", {"credsStore": "test"})}
    a = pull(f"{private.host}/secret", out, env=env)
    assert a.cause == "CREDENTIALS" and why in a.error and a.seconds < 5


def test_credential_helper_hangs(private, out, tmp_path):
    """Ctrl-C ends the wait, and the helper with what it has started."""
    env = {**helper(tmp_path / "bin", f"sleep 1000 & echo $! >{tmp_path}/child; wait\n"),
           **docker_config(tmp_path / "c", {"credsStore": "test"})}
    process = registries.start(f"{private.host}/secret", out, env=env)
    wait_until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
    process.send_signal(signal.SIGINT)
    assert registries.finish(process, timeout=5).cause == "CANCELLED"
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not os.path.exists(f"/proc/{child}") or "State:\tZ" in open(f"/proc/{child}/status").read())


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it does not happen")


@pytest.fixture(scope="session")
def tokens(tmp_path_factory, image):
    """A registry behind a token server: (registry, server)."""
    registries.need("docker-registry", "skopeo", "openssl")
    where = tmp_path_factory.mktemp("tokens")
    server = TokenServer(where / "server", {"ada": "lovelace"}, public=("open",))
    with Registry(where / "store", auth=server.auth(), push_options=["--dest-creds", "ada:lovelace"]) as one:
        for name in ("open", "secret"):
            push(image.layout(where / name), one, name)
        yield one, server
    server.close()


def test_token_anonymous(tokens, out):
    registry, server = tokens
    server.asked.clear()
    a = pull(f"{registry.host}/open", out)
    assert a.cause == "NONE"
    check_blobs(out, a)
    assert len(server.asked) == 1, "one token does for the whole image"
    _, query, authorization, _ = server.asked[0]
    assert query == {"service": ["test registry"], "scope": ["repository:open:pull"]} and authorization == ""
    a = pull(f"{registry.host}/secret", out)
    assert a.cause == "UNAUTHORISED" and "docker login" in a.error


def test_token_with_login(tokens, out, tmp_path):
    registry, server = tokens
    env = docker_config(tmp_path / "c", {"auths": {registry.host: {"auth": login()}}})
    server.asked.clear()
    assert pull(f"{registry.host}/secret", out, env=env).cause == "NONE"
    assert server.asked[0][1]["account"] == ["ada"]
    env = docker_config(tmp_path / "c", {"auths": {registry.host: {"auth": login(password="x")}}})
    a = pull(f"{registry.host}/secret", out, env=env)
    assert a.cause == "UNAUTHORISED" and "refuses the stored login" in a.error


def test_token_by_identity(tokens, out, tmp_path):
    """An identity token, from the file and from a helper, goes to the token server and nowhere else."""
    registry, server = tokens
    token = "the identity token"
    server.asked.clear()
    env = docker_config(tmp_path / "c", {"auths": {registry.host: {"identitytoken": token}}})
    assert pull(f"{registry.host}/secret", out, env=env).cause == "NONE"
    assert server.asked[0][3]["refresh_token"] == [token] and server.asked[0][3]["grant_type"] == ["refresh_token"]
    env = {**helper(tmp_path / "bin", 'echo "{\\"Username\\":\\"<token>\\",\\"Secret\\":\\"' + token + '\\"}"\n'),
           **docker_config(tmp_path / "c", {"credsStore": "test"})}
    assert pull(f"{registry.host}/secret", out.with_name("o2"), env=env).cause == "NONE"


def test_token_given(tokens, out, tmp_path):
    registry, server = tokens
    token = server.sign([{"type": "repository", "name": "secret", "actions": ["pull"]}], "x")
    env = docker_config(tmp_path / "c", {"auths": {registry.host: {"registrytoken": token}}})
    server.asked.clear()
    assert pull(f"{registry.host}/secret", out, env=env).cause == "NONE" and not server.asked


def test_token_expires_during_the_pull(image, out):
    """401 in the middle of the blobs: a new token, once, for all of them."""
    granted = []

    def token(c, request):
        granted.append(f"t{len(granted)}")
        registries.write(c, body=json.dumps({"token": granted[-1]}).encode(), Content_Type="application/json")

    honest = dict(registries.serve_image(image))

    def guarded(pattern):
        def answer(c, request):
            # the first token is good for the manifest only
            good = request.headers.get("authorization") == f"Bearer {granted[-1] if granted else ''}"
            if not granted or not good or (pattern == "/blobs/" and len(granted) == 1):
                return registries.write(c, "401 Unauthorized", WWW_Authenticate=f'Bearer realm="{s.url}/token"')
            return honest[pattern](c, request)
        return answer

    with Script([("/token", token), ("/manifests/", guarded("/manifests/")), ("/blobs/", guarded("/blobs/"))]) as s:
        a = pull(f"{s.host}/x", out)
        assert a.cause == "NONE", a.error
        check_blobs(out, a)
        assert len(granted) == 2


# ------------------------------------------------------------------------------------------------------------ TLS


@pytest.fixture(scope="session")
def secure(tmp_path_factory, image, authority):
    registries.need("docker-registry", "skopeo")
    where = tmp_path_factory.mktemp("secure")
    with Registry(where / "store", tls=authority.issue("registry")) as one:
        push(image.layout(where / "image"), one, "x")
        yield one


def test_tls_untrusted(secure, out):
    a = pull(f"{secure.host}/x", out)
    assert a.cause == "TLS" and "not trusted" in a.error and "ca_file" in a.error


def test_tls_with_ca(secure, out, authority):
    a = pull(f"{secure.host}/x", out, registries={secure.host: {"ca_file": str(authority.file)}})
    assert a.cause == "NONE"
    check_blobs(out, a)


def test_tls_insecure(secure, out):
    assert pull(f"{secure.host}/x", out, registries={secure.host: {"insecure": "true"}}).cause == "NONE"


def test_tls_wrong_name(tmp_path, out, authority):
    with Registry(tmp_path / "store", tls=authority.issue("other", "DNS:other.test")) as one:
        a = pull(f"{one.host}/x", out, registries={one.host: {"ca_file": str(authority.file)}})
        assert a.cause == "TLS"


def test_tls_ca_unreadable(secure, out, tmp_path):
    a = pull(f"{secure.host}/x", out, registries={secure.host: {"ca_file": str(tmp_path / "none.pem")}})
    assert a.cause == "TLS" and "ca_file" in a.error


def test_tls_never_downgraded(registry, out):
    """A mirror whose URL says https is not asked in plain HTTP, not even on this machine."""
    a = pull("python:3.12-slim", out, registries=hub("https://" + registry.host))
    assert a.cause == "TLS"


# ------------------------------------------------------------------------------------------------- mirrors, proxies, IPv6


def test_mirror_down(registry, out):
    dead = f"http://127.0.0.1:{registries.free_port()}"
    a = pull("python:3.12-slim", out, registries=hub(dead, registry.url))
    assert a.cause == "NONE" and a.seconds < 5


def test_mirrors_all_fail(registry, out):
    dead = f"http://127.0.0.1:{registries.free_port()}"
    a = pull("python:none", out, registries=hub(dead, registry.url))
    assert a.cause == "NOT_FOUND" and dead in a.error and registry.host in a.error


def test_mirror_with_a_path(registry, image, out, tmp_path):
    push(image.layout(tmp_path / "layout"), registry, "proxied/hub/library/perl:5")
    assert pull("perl:5", out, registries=hub(registry.url + "/proxied/hub/")).cause == "NONE"


def test_mirror_lacks_a_blob(image, out, tmp_path):
    """The first mirror has the manifest and half of the blobs, and breaks one off: the next goes on where it stopped."""
    names = [d["digest"] for d in image.document["layers"]]

    def half(c, request):
        name = request.path.rsplit("/", 1)[1]
        if name == names[0]:
            return registries.missing(c, request)
        if name == names[1]:
            registries.write(c, body=image.blobs[name][:100_000], length=len(image.blobs[name]))
            return False
        return dict(registries.serve_image(image))["/blobs/"](c, request)

    with Script(registries.serve_image(image, blob=half)) as one, Script(registries.serve_image(image)) as two:
        a = pull("x", out, registries=hub(one.url, two.url), attempts=1)
        assert a.cause == "NONE", a.error
        check_blobs(out, a)
        ranges = {r.path.rsplit("/", 1)[1]: r.headers.get("range") for r in two.requests}
        assert ranges == {names[0]: None, names[1]: "bytes=100000-"}


def test_ipv6(tmp_path, image, out):
    with Registry(tmp_path / "six", address="::1", listen="[::]") as one:
        push(image.layout(tmp_path / "image"), one, "x", host=f"127.0.0.1:{one.port}")  # skopeo knows no [::1]
        a = pull(f"{one.host}/x", out)
        assert a.cause == "NONE"
        check_blobs(out, a)


class Proxy(Quiet):
    """GET of absolute URLs, to wherever `target` is."""
    target, seen = None, []

    def do_GET(self):
        import urllib.request

        self.seen.append((self.path, self.headers.get("Proxy-Authorization")))
        url = re.sub(r"^http://[^/]+", self.target, self.path)
        headers = {k: v for k, v in self.headers.items() if k in ("Accept", "Range")}
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                urllib.request.Request(url, headers=headers)) as r:
            body = r.read()
            self.send_response(r.status)
            for k, v in r.headers.items():
                self.send_header(k, v)
            self.end_headers()
            self.wfile.write(body)

    do_CONNECT = do_GET


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxy(registry, out, variable):
    """A name that only the proxy knows; NO_PROXY takes it out again."""
    handler = type("P", (Proxy,), {"target": registry.url, "seen": []})
    server = serve_http(handler)
    env = {variable: f"http://me:pw@127.0.0.1:{server.server_address[1]}"}
    config = hub("http://registry.invalid")
    try:
        a = pull("python:3.12-slim", out, registries=config, env=env)
        assert a.cause == "NONE", a.error
        check_blobs(out, a)
        assert all(p.startswith("http://registry.invalid/v2/") for p, _ in handler.seen)
        assert handler.seen[0][1] == "Basic " + base64.b64encode(b"me:pw").decode()
        count = len(handler.seen)
        a = pull("python:3.12-slim", out, registries=config, env={**env, "NO_PROXY": ".invalid"})
        assert a.cause == "UNREACHABLE" and len(handler.seen) == count
    finally:
        server.shutdown()


def test_proxy_down(out):
    a = pull("r.invalid/x", out, env={"HTTPS_PROXY": f"http://u:secretpw@127.0.0.1:{registries.free_port()}"})
    assert a.cause == "UNREACHABLE" and "proxy" in a.error and "secretpw" not in a.error


# ---------------------------------------------------------------------------------------- downloads: resume, parallel, end


def part(folder, name, data):
    folder.mkdir(exist_ok=True)
    registries.partial(folder, name).write_bytes(data)


def test_resume(registry, image, out):
    """What is there is not asked for again."""
    names = [d["digest"] for d in image.document["layers"]]
    part(out, names[0], image.blobs[names[0]][:123_456])
    part(out, names[1], image.blobs[names[1]])
    a = pull("python:3.12-slim", out, registries=hub(registry.url))
    assert a.cause == "NONE"
    check_blobs(out, a)
    assert {b["digest"]: b["resumed"] for b in a.blobs if b["digest"] in names[:2]} == {
        names[0]: 123_456, names[1]: len(image.blobs[names[1]])}


@pytest.mark.parametrize("case", ["wrong", "wrong-whole", "longer", "no-range"])
def test_resume_of_rubbish(image, out, case):
    """A part that is wrong, or a server that cannot continue: from the beginning, once."""
    name = image.document["layers"][0]["digest"]
    whole = image.blobs[name]
    have = {"wrong": b"x" * 1000, "wrong-whole": b"x" * len(whole), "longer": whole + b"x", "no-range": whole[:1000]}[case]
    part(out, name, have)

    def plain(c, request):
        registries.write(c, body=image.blobs[request.path.rsplit("/", 1)[1]])

    with Script(registries.serve_image(image, **({"blob": plain} if case == "no-range" else {}))) as s:
        a = pull(f"{s.host}/x", out)
        assert a.cause == "NONE", a.error
        check_blobs(out, a)
        ranges = [r.headers.get("range") for r in s.requests if name in r.path]
        assert ranges == {"wrong": ["bytes=1000-", None], "wrong-whole": [None], "longer": [None],
                          "no-range": ["bytes=1000-"]}[case]


def test_cut_connections(image, out):
    """Each try gives 60,000 bytes more: it goes on by Range until all is there."""
    def stingy(c, request):
        data = image.blobs[request.path.rsplit("/", 1)[1]]
        n = int((re.search(r"\d+", request.headers.get("range", "0")) or [0])[0])
        head = f"HTTP/1.1 206 X\r\nContent-Range: bytes {n}-{len(data) - 1}/{len(data)}" if n else "HTTP/1.1 200 OK"
        c.sendall(f"{head}\r\nContent-Length: {len(data) - n}\r\n\r\n".encode() + data[n:n + 60_000])
        return len(data) - n <= 60_000 or False

    with Script(registries.serve_image(image, blob=stingy)) as s:
        a = pull(f"{s.host}/x", out, patience_ms=50)
        assert a.cause == "NONE", a.error
        check_blobs(out, a)
        assert sum("range" in r.headers for r in s.requests) >= 9
        a = pull(f"{s.host}/x", out.with_name("o2"), patience_ms=50, attempts=2)
        assert a.cause == "CUT" and "broke off" in a.error


def test_parallel(out):
    """Never more at a time than asked for, and really that many."""
    image = Image(layers=9, size=20_000)
    now, most = [0], [0]
    import threading
    lock = threading.Lock()

    def slow(c, request):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        dict(registries.serve_image(image))["/blobs/"](c, request)

    with Script(registries.serve_image(image, blob=slow)) as s:
        for n in (1, 3, 8):
            most[0] = 0
            a = pull(f"{s.host}/x", out.with_name(f"out{n}"), parallel=n)
            assert a.cause == "NONE" and most[0] == n


def test_progress(registry, image, out):
    a = pull("python:3.12-slim", out, registries=hub(registry.url), progress=1)
    lines = [json.loads(line) for line in a.stderr.splitlines()]
    total = sum(len(b) for b in image.blobs.values())
    assert lines[-1]["done"] == lines[-1]["total"] == total
    assert all(x["done"] <= y["done"] for x, y in zip(lines, lines[1:]))


def test_cancel(image, out):
    """Ctrl-C in the middle of a blob: at once, and what has come can be resumed."""
    name = image.document["layers"][0]["digest"]

    def slow(c, request):
        data = image.blobs[request.path.rsplit("/", 1)[1]]
        if len(data) < 50_000:  # the config; its connection is used again
            return dict(registries.serve_image(image))["/blobs/"](c, request)
        c.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data[:50_000])
        s.stop.wait(30)

    with Script(registries.serve_image(image, blob=slow)) as s:
        process = registries.start(f"{s.host}/x", out)
        one = registries.partial(out, name)
        wait_until(lambda: one.exists() and one.stat().st_size == 50_000)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        a = registries.finish(process, began)
        assert a.cause == "CANCELLED" and a.seconds < 5
    with Script(registries.serve_image(image)) as s:
        a = pull(f"{s.host}/x", out)
        assert a.cause == "NONE" and [b["resumed"] for b in a.blobs if b["digest"] == name] == [50_000]


def test_deadline(image, out):
    with Script(registries.serve_image(image, blob=lambda c, r: s.stop.wait(30))) as s:
        a = pull(f"{s.host}/x", out, deadline_ms=700)
        assert a.cause == "DEADLINE" and 0.6 < a.seconds < 5


def test_sink_fails(registry, out):
    """A file that may not grow: the error is the sink's, at once, and nothing is retried."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    a = pull("python:3.12-slim", out, registries=hub(registry.url), preexec=limit)
    assert a.cause == "SINK" and "File too large" in a.error and a.seconds < 5


def test_disk_full(registry, out, root_only):
    out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(out)], check=True)
    try:
        a = pull("python:3.12-slim", out, registries=hub(registry.url))
        assert a.cause == "SINK" and "No space left on device" in a.error
    finally:
        subprocess.run(["umount", str(out)], check=True)


def test_size_limit(registry, out):
    a = pull("python:3.12-slim", out, registries=hub(registry.url), max_total=1000)
    assert a.cause == "TOO_LARGE" and "at most 1000" in a.error and not list(out.iterdir())


def test_kill_and_go_on(out, tmp_path):
    """kill -9 at ten moments of a pull: a later one finishes from what is there."""
    image = Image(layers=4, size=3_000_000)
    with Script(registries.serve_image(image)) as s:
        for i in range(10):
            process = registries.start(f"{s.host}/x", out)
            time.sleep(0.004 * i)
            process.kill()
            process.communicate()
        a = pull(f"{s.host}/x", out)
        assert a.cause == "NONE", a.error
        assert all(hashlib.sha256((out / n).read_bytes()).hexdigest() == n[7:] for n in image.blobs)


def test_two_at_once(out):
    """Five processes, one image, one folder: each blob is asked for once, and all have everything."""
    image = Image(layers=4, size=100_000)

    def slow(c, request):
        time.sleep(0.1)
        dict(registries.serve_image(image))["/blobs/"](c, request)

    with Script(registries.serve_image(image, blob=slow)) as s:
        processes = [registries.start(f"{s.host}/x", out) for _ in range(5)]
        for p in processes:
            assert registries.finish(p).cause == "NONE"
        asked = [r.path for r in s.requests if "/blobs/" in r.path]
        assert all((out / n).read_bytes() == data for n, data in image.blobs.items())
        assert sorted(asked) == sorted("/v2/x/blobs/" + n for n in image.blobs)


def test_waiting_is_cancelled(image, out):
    """Ctrl-C also while another process has the blob."""
    with Script(registries.serve_image(image, blob=lambda c, r: s.stop.wait(30))) as s:
        first = registries.start(f"{s.host}/x", out)
        wait_until(lambda: out.exists() and registries.partial(out))
        wait_until(lambda: len(s.requests) > 1)
        second = registries.start(f"{s.host}/x", out)
        wait_until(lambda: len([r for r in s.requests if "/manifests/" in r.path]) == 2)
        for p in (second, first):
            p.send_signal(signal.SIGINT)
            assert registries.finish(p, timeout=5).status == 1


def test_memory(out):
    """A layer of 100 MB goes through, it does not stay."""
    data = os.urandom(1 << 20) * 100
    name = digest(data)
    image = Image(layers=1, size=10)
    image.blobs[name] = data
    image.document["layers"] = [{"mediaType": registries.GZIP, "digest": name, "size": len(data)}]
    with Script(registries.serve_image(image)) as s:
        a = pull(f"{s.host}/x", out)
        assert a.cause == "NONE" and a.rss_kib < registries.memory_kib()


