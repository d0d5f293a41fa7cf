# SPDX-License-Identifier: Apache-2.0
"""Registries that stall, lie, flood and lead astray: each is refused by a named cause, in bounded time and memory, and
nothing of it is kept as if it were good. test_control shows that the same server, honest, is pulled from."""
import gzip
import json
import socket
import ssl
import time

import pytest
import registry as registries
from registry import OCI, Image, Script, answer, digest, pull, serve_image, write

IMAGE = Image(layers=2, size=50_000)
NAMES = [d["digest"] for d in IMAGE.document["layers"]]
MEMORY_KIB = registries.memory_kib()


def attack(out, routes, *, cause, seconds=5, text=None, reference="{}/x", **options):
    """Pull from a server with these routes; what must hold whatever it did."""
    options = {"attempts": 2, "patience_ms": 200, "stall_ms": 1000, **options}
    with Script(routes) as s:
        a = pull(reference.format(s.host), out, **options)
        requests = s.requests
    assert a.cause == cause, a.error
    assert a.seconds < seconds and a.rss_kib < MEMORY_KIB
    if text:
        assert text in a.error
    assert all(" " <= c <= "~" for c in a.error or ""), repr(a.error)
    for p in out.iterdir():
        assert p in registries.partial(out) or digest(p.read_bytes()) == p.name
        assert p.stat().st_size < 1 << 20
    return a, requests


def manifest(function):
    return serve_image(IMAGE, manifest=function)


def blob(function):
    return serve_image(IMAGE, blob=function)


def test_control(out):
    a, requests = attack(out, serve_image(IMAGE), cause="NONE")
    registries.check_blobs(out, a)
    assert len(requests) == 4


# ------------------------------------------------------------------------------------------------------------ stalls


def hold(head=b""):
    """Send this, then nothing for ever."""
    def function(c, request):
        c.sendall(head)
        c.settimeout(30)
        c.recv(1)
        return False
    return function


def trickle(head, piece, pause=0.05):
    def function(c, request):
        c.sendall(head)
        for _ in range(400):
            c.sendall(piece)
            time.sleep(pause)
        return False
    return function


@pytest.mark.parametrize("function", [
    hold(), hold(b"HTTP/1.1 200 OK\r\n"), hold(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{"),
    trickle(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.5), trickle(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n{\r\n"),
    trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.5),
], ids=["silent", "half-header", "half-body", "slow-header", "slow-chunks", "slow-100"])
def test_stalls(out, function):
    attack(out, manifest(function), cause="STALLED", seconds=7, text="stopped sending")
    attack(out, blob(function), cause="STALLED", seconds=7, text="stopped sending")


def test_stalls_at_tls(out):
    """A server that takes the connection and says nothing: not TLS, not HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        a = pull(f"127.0.0.1:{s.getsockname()[1]}/x", out, connect_ms=500)
        assert a.cause == "UNREACHABLE" and a.seconds < 10 and "no connection within" in a.error


# ------------------------------------------------------------------------------------------------------------- floods


def flood(head, piece, count=100_000):
    def function(c, request):
        c.sendall(head)
        for _ in range(count):
            c.sendall(piece)
        return False
    return function


MIB = b"x" * (1 << 20)
CHUNK = b"100000\r\n" + MIB + b"\r\n"


@pytest.mark.parametrize("function, cause", [
    (flood(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", MIB), "TOO_LARGE"),
    (flood(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK), "TOO_LARGE"),
    (flood(b"HTTP/1.1 200 OK\r\n\r\n", MIB), "TOO_LARGE"),
    (flood(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 1000 + b"\r\n"), "TOO_LARGE"),
    (flood(b"HTTP/1.1 200 OK\r\nX: ", MIB), "TOO_LARGE"),
    (flood(b"", b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n"), "TOO_LARGE"),
    (flood(b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK), "NOT_A_REGISTRY"),
    (flood(b"HTTP/1.1 401 Unauthorized\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK), "UNAUTHORISED"),
    (flood(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK), "NOT_FOUND"),
], ids=["1-GiB", "endless-chunks", "endless", "headers", "one-header", "interim", "404-body", "401-body", "302-body"])
def test_floods_instead_of_a_manifest(out, function, cause):
    attack(out, manifest(function), cause=cause, seconds=4)


@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked\r\n\r\n", b"\r\n"], ids=["chunks", "bare"])
def test_floods_instead_of_a_blob(out, head):
    attack(out, blob(flood(b"HTTP/1.1 200 OK\r\n" + head, CHUNK)), cause="BAD_ANSWER", text="more than the")


# ------------------------------------------------------------------------------------------------------------- lies


@pytest.mark.parametrize("length, cause", [
    (1 << 30, "BAD_ANSWER"), (10, "BAD_ANSWER"), ("18446744073709551617", "BAD_ANSWER"), ("-5", "NOT_A_REGISTRY"),
    ("0x10", "BAD_ANSWER"), ("5, 5", "BAD_ANSWER"),
])
def test_lying_length_of_a_blob(out, length, cause):
    attack(out, blob(lambda c, r: write(c, body=IMAGE.blobs.get(r.path.rsplit("/", 1)[1], b""), length=length)), cause=cause)


def test_truncated_blob(out):
    """It never comes whole: what came is kept for later, and each try asks for the rest."""
    def function(c, request):
        data = IMAGE.blobs[request.path.rsplit("/", 1)[1]]
        write(c, body=data[:100], length=len(data))
        return False
    _, requests = attack(out, blob(function), cause="CUT")
    assert any(r.headers.get("range") == "bytes=100-" for r in requests)


def test_chunked_blob_ends_early(out):
    def function(c, request):
        c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    attack(out, blob(function), cause="CUT", text="ended after 3 of")


def test_RE_07_wrong_bytes_of_a_blob(out):
    """As long as it should be and something else: refused, and nothing is left to be resumed."""
    def function(c, request):
        write(c, body=b"x" * len(IMAGE.blobs[request.path.rsplit("/", 1)[1]]))
    attack(out, blob(function), cause="DIGEST", text="sends something else")
    assert any(p.stat().st_size == 0 for p in out.iterdir()) and set(out.iterdir()) == set(registries.partial(out))


def test_wrong_manifest_for_a_digest(out):
    attack(out, serve_image(IMAGE), cause="DIGEST", reference="{}/x@" + digest(b"another"), text="sends something else")


def test_digest_header_lies(out):
    attack(out, manifest(answer(body=IMAGE.manifest, Content_Type=OCI, Docker_Content_Digest=digest(b"x"))), cause="DIGEST")


def index_of(entry, **more):
    entry = {"mediaType": OCI, "digest": digest(IMAGE.manifest), "size": len(IMAGE.manifest),
             "platform": {"os": "linux", "architecture": "amd64"}, **entry}
    return json.dumps({"schemaVersion": 2, "mediaType": registries.INDEX, "manifests": [entry], **more}).encode()


@pytest.mark.parametrize("entry, cause", [
    ({"size": len(IMAGE.manifest) + 1}, "BAD_ANSWER"), ({"digest": digest(b"x")}, "DIGEST"),
    ({"digest": "sha256:../../../../etc/passwd"}, "BAD_ANSWER"), ({"size": -1}, "BAD_ANSWER"), ({"size": 1 << 40}, "TOO_LARGE"),
    ({"mediaType": registries.INDEX}, "NO_PLATFORM"),
])
def test_lying_index(out, entry, cause):
    def function(c, request):
        write(c, body=IMAGE.manifest if "sha256" in request.path else index_of(entry),
              Content_Type=OCI if "sha256" in request.path else registries.INDEX)
    attack(out, manifest(function), cause=cause)


def test_index_that_leads_to_itself(out):
    """The entry of an index is a manifest, not an index again."""
    inner = index_of({})
    outer = index_of({"digest": digest(inner), "size": len(inner)})

    def function(c, request):
        write(c, body=inner if digest(inner) in request.path else outer, Content_Type=registries.INDEX)
    attack(out, manifest(function), cause="BAD_ANSWER")


def changed(**more):
    return json.dumps({**IMAGE.document, **more}).encode()


@pytest.mark.parametrize("body, kind, cause", [
    (b"", OCI, "BAD_ANSWER"), (b"{", OCI, "BAD_ANSWER"), (b"[" * 100_000, OCI, "BAD_ANSWER"), (b"{}" * 10, OCI, "BAD_ANSWER"),
    (b"\xff\xfe{\x00}\x00", OCI, "BAD_ANSWER"), (b'{"schemaVersion":2,"schemaVersion":2}', OCI, "BAD_ANSWER"),
    (b"[" + b"0," * 500_000 + b"0]", OCI, "BAD_ANSWER"), (changed(manifests=[]), OCI, "BAD_ANSWER"),
    (changed(mediaType=registries.INDEX), OCI, "BAD_ANSWER"), (changed(layers=[]), OCI, "BAD_ANSWER"),
    (changed(layers=IMAGE.document["layers"] * 300), OCI, "TOO_LARGE"),
    (changed(layers=[{**IMAGE.document["layers"][0], "size": 1 << 62}]), OCI, "TOO_LARGE"),
    (changed(layers=[{**IMAGE.document["layers"][0], "size": 30 << 30}]), OCI, "TOO_LARGE"),
    (changed(layers=[{**IMAGE.document["layers"][0], "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"}]), OCI,
     "UNSUPPORTED"),
    (changed(layers=[{**IMAGE.document["layers"][0], "urls": ["file:///etc/passwd"],
                      "mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"}]), OCI, "UNSUPPORTED"),
    (b'{"schemaVersion":1,"fsLayers":[]}', "application/vnd.docker.distribution.manifest.v1+prettyjws", "UNSUPPORTED"),
    (IMAGE.manifest, "text/html", "NOT_A_REGISTRY"), (IMAGE.manifest, "application/vnd.x\x1b[31m", "BAD_ANSWER"),
], ids=range(18))
def test_bad_manifests(out, body, kind, cause):
    attack(out, manifest(answer(body=body, Content_Type=kind)), cause=cause)


@pytest.mark.parametrize("data, encoding", [(gzip.compress(IMAGE.manifest), "gzip"), (b"no gzip", "gzip"), (IMAGE.manifest, "br"),
                                            (gzip.compress(b"\0" * 10_000_000), "x-gzip, gzip")])
def test_packed_once_more(out, data, encoding):
    """Nobody asked for Content-Encoding: no bomb is opened."""
    attack(out, manifest(answer(body=data, Content_Type=OCI, Content_Encoding=encoding)), cause="BAD_ANSWER", text="packed once more")
    attack(out, blob(answer(body=data, Content_Encoding=encoding)), cause="BAD_ANSWER", text="packed once more")


@pytest.mark.parametrize("status, headers, cause", [
    ("206 Partial Content", {"Content_Range": "bytes 0-9/{n}"}, "BAD_ANSWER"), ("206 Partial Content", {}, "BAD_ANSWER"),
    ("206 Partial Content", {"Content_Range": "bytes 10-5/99999999999999999999999"}, "BAD_ANSWER"),
    ("206 Partial Content", {"Content_Range": "x" * 1000}, "BAD_ANSWER"), ("204 No Content", {}, "NOT_A_REGISTRY"),
    ("416 Range Not Satisfiable", {}, "NOT_A_REGISTRY"),
])
def test_lying_ranges(out, status, headers, cause):
    """Also when something is there already, which is then of no use."""
    out.mkdir()
    registries.partial(out, NAMES[0]).write_bytes(IMAGE.blobs[NAMES[0]][:1000])

    def function(c, request):
        data = IMAGE.blobs[request.path.rsplit("/", 1)[1]]
        write(c, status, data, **{k: v.format(n=len(data)) for k, v in headers.items()})
    attack(out, blob(function), cause=cause)


@pytest.mark.parametrize("text", [b"HTTP/1.1 abc\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"<html>\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n",
                                  b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDocker-Content-Digest: \0\r\n\r\n{}",
                                  b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
                                  b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b""])
def test_broken_http(out, text):
    def function(c, request):
        c.sendall(text)
        return False
    with Script(manifest(function)) as s:
        a = pull(f"{s.host}/x", out, attempts=2, patience_ms=100, stall_ms=1000)
        assert a.cause in ("NOT_A_REGISTRY", "BAD_ANSWER", "CUT") and a.seconds < 4


def test_escapes_in_messages(out):
    """What a registry says to people cannot speak to their terminals."""
    body = json.dumps({"errors": [{"code": "X\x1b[2J", "message": "a\r\nb\x07\u202e" + "m" * 5000}]}).encode()
    a, _ = attack(out, manifest(answer("404 Not Found", body, Content_Type="application/json")), cause="NOT_A_REGISTRY")
    body = body.replace(b"m" * 5000, b"")
    a, _ = attack(out, manifest(answer("404 Not Found", body, Content_Type="application/json")), cause="NOT_FOUND")
    assert "X?[2J" in a.error and len(a.error) < 760


# ----------------------------------------------------------------------------------------------------------- redirects


@pytest.mark.parametrize("location", [
    "file:///etc/passwd", "FILE:///etc/passwd", "gopher://127.0.0.1:70/x", "ftp://127.0.0.1/x", "dict://127.0.0.1:11211/stat",
    "http://user:password@127.0.0.1/x", "", "http://", "http://127.0.0.1:99999/x", "x" * 9000, "javascript:alert(1)",
    "http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/x", "http://0.0.0.0:1/x", "http://[::]:1/x",
])
def test_AP_11_redirects_astray(out, location):
    """To no http, to a login, to nowhere, to link-local addresses. Nobody is contacted, so it is fast."""
    for routes in (manifest, blob):
        a, _ = attack(out, routes(answer("307 Temporary Redirect", Location=location)),
                      cause="BAD_ANSWER" if len(location) > 8192 else "FORBIDDEN", seconds=2)
        assert "password" not in a.error


def test_redirect_loops(out):
    a, requests = attack(out, manifest(lambda c, r: write(c, "302 Found", Location=r.path)), cause="FORBIDDEN",
                         text="more than 5 redirects")
    assert len(requests) == 6
    count = [0]

    def deeper(c, request):
        count[0] += 1
        write(c, "301 Moved", Location=f"/v2/x/manifests/{count[0]}")
    attack(out, manifest(deeper), cause="FORBIDDEN")
    assert count[0] == 6


def test_redirect_to_a_cdn(out):
    """The honest kind, relative and to another host: followed, without our login."""
    def to(url):
        return lambda c, r: write(c, "307 Temporary Redirect", Location=url + "/blobs/" + r.path.rsplit("/", 1)[1] + "?sig=%2F")

    def guard(c, request):
        if "authorization" not in request.headers:
            return write(c, "401 Unauthorized", WWW_Authenticate='Bearer realm="%s/token"' % s.url)
        if request.path.startswith("/v2/") and "/blobs/" in request.path:
            return to(cdn.url)(c, request)
        serve_image(IMAGE)[0][1](c, request)

    def cdn_blob(c, request):
        request.path = request.path.partition("?")[0]
        serve_image(IMAGE)[1][1](c, request)

    with Script([("/blobs/", cdn_blob)]) as cdn, \
            Script([("/token", answer(body=b'{"token":"secret"}', Content_Type="application/json")), ("/v2/", guard)]) as s:
        a = pull(f"{s.host}/x", out)
        assert a.cause == "NONE", a.error
        registries.check_blobs(out, a)
        assert cdn.requests and not any("authorization" in r.headers for r in cdn.requests)
        assert not any("secret" in r.path for r in cdn.requests)


def test_redirect_from_https_to_http(out, authority, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("redirector"))
    with Script(serve_image(IMAGE)) as plain, \
            Script([("/v2/", lambda c, r: write(c, "307 X", Location=plain.url + r.path))], tls=context) as s:
        a = pull(f"{s.host}/x", out, registries={s.host: {"ca_file": str(authority.file)}})
        assert a.cause == "FORBIDDEN" and "from https to plain http" in a.error
        assert not plain.requests


def test_insecure_is_for_one_host(out, authority):
    """insecure: true of a registry does not make the hosts it leads to insecure."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("cdn"))
    with Script(serve_image(IMAGE), tls=context) as cdn:
        with Script([("/v2/", lambda c, r: write(c, "307 X", Location=cdn.url.replace("http:", "https:") + r.path))]) as s:
            a = pull(f"{s.host}/x", out, registries={s.host: {"insecure": "true"}})
            assert a.cause == "TLS" and not cdn.requests


# -------------------------------------------------------------------------------------------------------------- tokens


def challenge(text, token=None):
    routes = [("/token", token)] if token else []
    return [*routes, ("/v2/", lambda c, r: write(c, "401 Unauthorized", WWW_Authenticate=text.replace("HOST", r.headers["host"])))]


@pytest.mark.parametrize("text, cause", [
    ('Bearer realm="file:///etc/passwd"', "FORBIDDEN"), ('Bearer realm="gopher://127.0.0.1/"', "FORBIDDEN"),
    ('Bearer realm="http://other.test/token"', "FORBIDDEN"), ('Bearer realm="http://localhost:1/token"', "FORBIDDEN"),
    ('Bearer realm="http://u:p@HOST/token"', "FORBIDDEN"), ('Bearer realm="https://169.254.169.254/token"', "FORBIDDEN"),
    ("Bearer", "FORBIDDEN"), ('Bearer realm=""', "FORBIDDEN"), ('Bearer realm="/token"', "FORBIDDEN"),
    ('Bearer realm="open', "BAD_ANSWER"), ('Bearer realm="' + "x" * 3000 + '"', "BAD_ANSWER"), ("Digest realm=x", "UNAUTHORISED"),
    ("x" * 20_000, "BAD_ANSWER"), ("", "UNAUTHORISED"),
])
def test_realms(out, text, cause):
    attack(out, challenge(text), cause=cause, seconds=2)


REALM = 'Bearer realm="http://HOST/token",service="s",scope="repository:somebody/else:pull,push"'


@pytest.mark.parametrize("token, cause", [
    (answer(body=b"<html>"), "BAD_ANSWER"), (answer(body=b"{}"), "BAD_ANSWER"), (answer(body=b'{"token":7}'), "BAD_ANSWER"),
    (answer(body=b'{"token":"a\\r\\nHost: evil"}'), "BAD_ANSWER"), (answer(body=b'{"token":"%s"}' % (b"a" * 40_000)), "BAD_ANSWER"),
    (flood(b"HTTP/1.1 200 OK\r\n\r\n", MIB), "TOO_LARGE"), (hold(), "STALLED"), (answer("401 Unauthorized"), "UNAUTHORISED"),
    (answer("403 Forbidden"), "UNAUTHORISED"), (answer("500 X"), "SERVER"), (answer("404 X"), "NOT_FOUND"),
    (answer("302 Found", Location="http://127.0.0.1:1/"), "FORBIDDEN"), (answer(body=b'{"token":"never-good"}'), "UNAUTHORISED"),
], ids=range(13))
def test_token_servers(out, token, cause):
    """Whatever the server says, the scope that is asked for is ours; a token that does not help is not asked for again
    and again."""
    _, requests = attack(out, challenge(REALM, token), cause=cause)
    asked = [r.path for r in requests if r.path.startswith("/token")]
    assert asked and all(p == "/token?scope=repository%3Ax%3Apull&service=s" for p in asked) and len(asked) <= 2


def test_password_is_not_for_everybody(out, tmp_path):
    """The registry's password goes to its own token server, not to one that it cannot vouch for, and not to a mirror's."""
    import base64

    env_folder = tmp_path / "c"
    env_folder.mkdir()
    with Script([]) as thief, Script([]) as s:
        (env_folder / "config.json").write_text(json.dumps(
            {"auths": {s.host: {"auth": base64.b64encode(b"ada:lovelace").decode()},
                       "https://index.docker.io/v1/": {"auth": base64.b64encode(b"hub:secret").decode()}}}))
        env = {"DOCKER_CONFIG": str(env_folder)}
        thief.routes = [("/", lambda c, r: write(c, body=b'{"token":"x"}'))]
        s.routes = challenge(f'Bearer realm="http://localhost:{thief.port}/token"')
        assert pull(f"{s.host}/x", out, env=env).cause == "FORBIDDEN" and not thief.requests
        # a mirror of Docker Hub gets what is stored for the mirror (nothing), not what is stored for the Hub
        thief.routes = challenge('Basic realm="x"')
        a = pull("python:3", out, env=env, registries={"docker.io": {"mirrors": [thief.url], "only_mirrors": "true"}})
        assert a.cause == "UNAUTHORISED" and thief.requests and not any("authorization" in r.headers for r in thief.requests)
        # Basic: to the registry itself, and no further
        s.routes = [("/v2/", lambda c, r: write(c, "307 X", Location=thief.url + r.path) if "authorization" in r.headers
                     else write(c, "401 X", WWW_Authenticate='Basic realm="x"'))]
        thief.requests.clear()
        pull(f"{s.host}/x", out, env=env)
        assert any("authorization" in r.headers for r in s.requests)
        assert thief.requests and not any("authorization" in r.headers for r in thief.requests)


def test_a_cdn_does_not_ask_for_logins(out, tmp_path):
    """401 from where a redirect led to: its challenge is not followed, with a stored login least of all."""
    import base64

    with Script([]) as thief, Script([]) as cdn, Script([]) as s:
        (tmp_path / "config.json").write_text(json.dumps(
            {"auths": {h: {"auth": base64.b64encode(b"ada:lovelace").decode()} for h in (s.host, cdn.host, thief.host)}}))
        thief.routes = [("/", lambda c, r: write(c, body=b'{"token":"x"}'))]
        for scheme in (f'Bearer realm="{thief.url}/token"', 'Basic realm="x"'):
            cdn.routes = challenge(scheme)
            s.routes = serve_image(IMAGE, blob=lambda c, r: write(c, "307 X", Location=cdn.url + r.path))
            a = pull(f"{s.host}/x", out, env={"DOCKER_CONFIG": str(tmp_path)}, attempts=1)
            assert a.cause == "UNAUTHORISED" and cdn.requests and not thief.requests
            assert not any("authorization" in r.headers for r in s.requests + cdn.requests)


# ------------------------------------------------------------------------------------------------------- patience


def after(failures, then):
    """These first, one per request; then the real thing."""
    left = list(failures)

    def function(c, request):
        return (left.pop(0) if left else then)(c, request)
    return function


GOOD = serve_image(IMAGE)[0][1]


def test_too_many_requests(out):
    a, requests = attack(out, manifest(after([answer("429 X", Retry_After="1")], GOOD)), cause="NONE", patience_ms=5000)
    assert a.seconds > 0.9 and len(requests) == 5
    a, requests = attack(out, manifest(answer("429 X", Retry_After="3600")), cause="RATE_LIMITED", seconds=1, text="again in 3600 s",
                         patience_ms=5000)
    assert len(requests) == 1
    a, requests = attack(out, manifest(answer("429 X")), cause="RATE_LIMITED", text="try again later")
    assert len(requests) == 2


def test_errors_that_pass(out):
    drop = (lambda c, r: False)
    bad = [answer("503 X"), answer("500 X"), drop, answer("502 X")]
    a, requests = attack(out, manifest(after(bad, GOOD)), cause="NONE", attempts=5)
    assert len(requests) == 8
    a, requests = attack(out, manifest(answer("500 X")), cause="SERVER", attempts=3, text="has an error of its own")
    assert len(requests) == 3


def test_one_byte_at_a_time(out):
    """A server that gives a byte per connection is not asked for ever."""
    def stingy(c, request):
        data = IMAGE.blobs[request.path.rsplit("/", 1)[1]]
        n = int(request.headers.get("range", "bytes=0-")[6:-1])
        write(c, "206 X" if n else "200 OK", data[n:n + 1], length=len(data) - n, Content_Range=f"bytes {n}-{len(data) - 1}/{len(data)}")
        return False
    _, requests = attack(out, blob(stingy), cause="CUT", attempts=4)
    assert len(requests) < 20


@pytest.mark.parametrize("status", ["403 Forbidden", "418 X", "400 X", "101 Switching Protocols", "199 X", "999 X", "301 X"])
def test_other_answers(out, status):
    with Script(manifest(answer(status))) as s:
        a = pull(f"{s.host}/x", out, attempts=2, patience_ms=100, stall_ms=1000)
        assert a.cause in ("UNAUTHORISED", "NOT_A_REGISTRY", "FORBIDDEN", "STALLED", "SERVER", "BAD_ANSWER", "CUT")
        assert a.seconds < 4
