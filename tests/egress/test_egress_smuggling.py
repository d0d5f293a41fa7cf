# SPDX-License-Identifier: Apache-2.0
"""Requests that two parsers could read in two ways: refused, or passed on as exactly the one that was judged (PX-09, PX-11, PX-12)."""
import egress
import pytest

EVIL = "GET /evil HTTP/1.1\r\nHost: api.test\r\n\r\n"


def request(host, fields="", body="", method="POST", path="/", version="HTTP/1.1"):
    return f"{method} http://{host}{path} {version}\r\nHost: {host}\r\n{fields}\r\n{body}"


# name: (fields, body). All of it is to be refused with 400 (or what stands third) before anything goes upstream.
REFUSED = {
    "CL and TE": ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + EVIL),
    "TE and CL": ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n" + EVIL),
    "TE twice": ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + EVIL),
    "TE twice, identity": ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    "TE xchunked": ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n" + EVIL),
    "TE chunked, chunked": ("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
    "TE gzip, chunked": ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
    "TE chunked, identity": ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
    "TE chunked with VT": ("Transfer-Encoding: chunked\x0b\r\n", "0\r\n\r\n"),
    "TE with VT before": ("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"),
    "TE quoted": ('Transfer-Encoding: "chunked"\r\n', "0\r\n\r\n"),
    "TE with a parameter": ("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"),
    "TE with a blank before the colon": ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
    "TE behind a blank": (" Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    "TE folded": ("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"),
    "TE empty": ("Transfer-Encoding: \r\n", "0\r\n\r\n"),
    "CL +5": ("Content-Length: +5\r\n", "abcde"),
    "CL -5": ("Content-Length: -5\r\n", "abcde"),
    "CL 0x5": ("Content-Length: 0x5\r\n", "abcde"),
    "CL 5.0": ("Content-Length: 5.0\r\n", "abcde"),
    "CL 5e0": ("Content-Length: 5e0\r\n", "abcde"),
    "CL empty": ("Content-Length: \r\n", "abcde"),
    "CL with a blank inside": ("Content-Length: 1 0\r\n", "abcdeabcde"),
    "CL, CL": ("Content-Length: 5, 5\r\n", "abcde"),
    "two CL": ("Content-Length: 5\r\nContent-Length: 6\r\n", "abcdef"),
    "two CL, the same": ("Content-Length: 5\r\nContent-Length: 5\r\n", "abcde"),
    "CL of 20 digits": ("Content-Length: 18446744073709551620\r\n", "abcde", "400 413"),
    "CL beyond 64 bits": ("Content-Length: 99999999999999999999999999\r\n", "abcde", "400 413"),
    "CL with a blank before the colon": ("Content-Length : 5\r\n", "abcde"),
    "CL with NUL": ("Content-Length: 5\0\r\n", "abcde"),
    "bare LF between fields": ("X: a\nContent-Length: 5\r\n", "abcde"),
    "bare CR in a field": ("X: a\rContent-Length: 5\r\n", "abcde"),
    "bare LF at the end": ("X: a\r\n\n", EVIL),
    "CR CR LF": ("X: a\r\r\n", ""),
    "obs-fold": ("X: a\r\n b\r\n", ""),
    "obs-fold with a tab": ("X: a\r\n\tb\r\n", ""),
    "NUL in a value": ("X: a\0b\r\n", ""),
    "NUL in a name": ("X\0: a\r\n", ""),
    "no colon": ("Nothing\r\n", ""),
    "no name": (": a\r\n", ""),
    "a blank in a name": ("X Y: a\r\n", ""),
    "a bracket in a name": ("X[: a\r\n", ""),
    "a byte above ASCII in a name": ("X\xe9: a\r\n", ""),
    "DEL in a value": ("X: a\x7f\r\n", ""),
    "two Hosts": ("Host: api.test\r\n", ""),
    "Expect of another kind": ("Expect: 200-ok\r\n", ""),
    "chunk size with 0x": ("Transfer-Encoding: chunked\r\n", "0x3\r\nabc\r\n0\r\n\r\n"),
    "chunk size with plus": ("Transfer-Encoding: chunked\r\n", "+3\r\nabc\r\n0\r\n\r\n"),
    "chunk size with a blank": ("Transfer-Encoding: chunked\r\n", "3 \r\nabc\r\n0\r\n\r\n"),
    "chunk size empty": ("Transfer-Encoding: chunked\r\n", "\r\nabc\r\n0\r\n\r\n"),
    "chunk size of 17 digits": ("Transfer-Encoding: chunked\r\n", "10000000000000003\r\nabc\r\n0\r\n\r\n"),
    "chunk size with bare LF": ("Transfer-Encoding: chunked\r\n", "3\nabc\r\n0\r\n\r\n"),
    "chunk extension with LF": ("Transfer-Encoding: chunked\r\n", "3;a\nb\r\nabc\r\n0\r\n\r\n"),
    "chunk extension with CR": ("Transfer-Encoding: chunked\r\n", "3;a\rb\r\nabc\r\n0\r\n\r\n"),
    "chunk extension without end": ("Transfer-Encoding: chunked\r\n", "3;" + "a" * 300 + "\r\nabc\r\n0\r\n\r\n"),
    "chunk extensions without end": ("Transfer-Encoding: chunked\r\n", ("1;" + "a" * 200 + "\r\na\r\n") * 30 + "0\r\n\r\n"),
    "chunk data longer than its size": ("Transfer-Encoding: chunked\r\n", "3\r\nabcd\r\n0\r\n\r\n"),
    "chunk end with bare LF": ("Transfer-Encoding: chunked\r\n", "3\r\nabc\n0\r\n\r\n"),
    "last chunk with LF": ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\n\n"),
    "trailers": ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\nX: y\r\n\r\n"),
    "trailers that would authorise": ("Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n", "0\r\nAuthorization: x\r\n\r\n"),
}
BEGUN = [n for n in REFUSED if n.startswith(("chunk", "last chunk", "trailers"))]  # the header was whole: it may have gone on


def upstream_requests(server):
    """What a server that counts byte by byte saw: how many request lines."""
    return [line for received in server.received for line in received.decode("latin-1").split("\r\n") if line.endswith(" HTTP/1.1")]


@pytest.mark.parametrize("name", REFUSED)
def test_PX_11_ambiguous_requests_are_refused(proxied, name):
    e, s = proxied()
    fields, body, *status = REFUSED[name]
    answer = e.send(request(f"api.test:{s.port}", fields, body))
    assert answer[9:12].decode() in (status[0] if status else "400"), answer
    assert answer.count(b"HTTP/1.1 ") == 1 and b"Connection: close" in answer
    seen = upstream_requests(s)
    if name in BEGUN:
        assert seen in ([], ["POST / HTTP/1.1"]), seen
        for received in s.received:  # and was never ended: the server does not act on it
            assert not received.endswith(b"0\r\n\r\n"), received
    else:
        assert seen == []


@pytest.mark.parametrize("line", ["GET  http://{}/ HTTP/1.1", "GET http://{}/  HTTP/1.1", " GET http://{}/ HTTP/1.1", "GET\thttp://{}/ HTTP/1.1",
                                  "GET http://{}/ HTTP/1.1 ", "GET http://{}/ HTTP/1.2", "GET http://{}/ HTTP/2.0", "GET http://{}/ http/1.1",
                                  "GET http://{}/", "GET http://{}/ HTTP/1.1\r\n", "get http://{}/ HTTP/1.1", "G@T http://{}/ HTTP/1.1",
                                  "GET http://{}/a b HTTP/1.1", "GET http://{}/a\0b HTTP/1.1", "GET http://{}/\x01 HTTP/1.1", "GET http://{}/\xe9 HTTP/1.1",
                                  "GET http://{}/#x HTTP/1.1", "GET http://{}?x HTTP/1.1", "GET http:/{}/ HTTP/1.1", "GET https://{}/ HTTP/1.1",
                                  "GET ftp://{}/ HTTP/1.1", "GET //{}/ HTTP/1.1", "GET / HTTP/1.1", "GET * HTTP/1.1", "OPTIONS * HTTP/1.1",
                                  "GET http://user@{}/ HTTP/1.1", "GET http://api.test@evil.test:80@{}/ HTTP/1.1", "GET http:///{}/ HTTP/1.1",
                                  "GET http://{}\\@evil.test/ HTTP/1.1", "TRACE http://{}/ HTTP/1.1", "PRI * HTTP/2.0", "\r\n\r\nGET http://{}/ HTTP/1.1",
                                  "FOO http://{}/ HTTP/1.1"])
def test_PX_12_request_lines(proxied, line):
    e, s = proxied()
    at = f"api.test:{s.port}"
    answer = e.send(f"{line.format(at)}\r\nHost: {at}\r\n\r\n")
    assert answer[9:12] in (b"400", b"403", b"405") or answer in (b"", b"RESET"), answer
    assert not s.received


@pytest.mark.parametrize("host", ["evil.test", "evil.test:{port}", "api.test", "api.test:80", "api.test:{port}@evil.test", "api.test:{port}:80",
                                  "api.test.evil.test:{port}", "user@api.test:{port}", "api.test:{port}, evil.test", "api.test:0{port}", "", "[::1]:{port}",
                                  "api.test:{port} evil.test", "api.test:{port}/"])
def test_PX_09_Host_and_target_disagree(proxied, host):
    e, s = proxied()
    answer = e.send(f"GET http://api.test:{s.port}/ HTTP/1.1\r\nHost: {host.format(port=s.port)}\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert not s.received
    same = e.send(f"GET http://api.test:{s.port}/ HTTP/1.1\r\nHost: API.test.:{s.port}\r\nConnection: close\r\n\r\n")  # control
    assert same.startswith(b"HTTP/1.1 200")


def test_PX_09_no_Host(proxied):
    e, s = proxied()
    assert e.send(f"GET http://api.test:{s.port}/ HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    answer = e.send(f"GET http://api.test:{s.port}/ HTTP/1.0\r\n\r\n")  # which has none by rights
    assert answer.endswith(f"GET / HTTP/1.1\r\nHost: api.test:{s.port}\r\n\r\n".encode())


def test_PX_09_each_request_of_a_connection_is_decided(proxied):
    e, s = proxied()
    at = f"api.test:{s.port}"
    answer = e.send(request(at, "Content-Length: 0\r\n") + request("no.test", "Content-Length: 0\r\n") + request(at, "Content-Length: 0\r\n"))
    assert answer.count(b"200 OK") == 1 and answer.count(b"403 Forbidden") == 1 and answer.index(b"200 OK") < answer.index(b"403")
    assert len(upstream_requests(s)) == 1
    assert e.denials() == [("no.test", 80)]


def test_PX_11_a_body_that_looks_like_a_request_stays_a_body(proxied):
    """Content-Length on a GET whose body is a request."""
    e, s = proxied()
    at = f"api.test:{s.port}"
    e.send(request(at, f"Content-Length: {len(EVIL)}\r\nConnection: close\r\n", EVIL, method="GET"))
    assert [(h.split("\r\n")[0], b) for h, b in s.requests] == [("GET / HTTP/1.1", EVIL.encode())]
    chunk = f"{len(EVIL):x}\r\n{EVIL}\r\n0\r\n\r\n"
    e.send(request(at, "Transfer-Encoding: chunked\r\nConnection: close\r\n", chunk))
    assert s.requests[-1][1] == EVIL.encode() and len(s.requests) == 2


def test_PX_11_one_request_upstream_for_each(proxied):
    """Many that are right, byte for byte as they are written anew."""
    e, s = proxied()
    at = f"api.test:{s.port}"
    wire, expected = "", ""
    for i in range(200):
        body = "x" * (i % 7)
        if i % 3 == 0:
            wire += request(at, "Transfer-Encoding: chunked\r\n", "".join(f"1;e={i}\r\nx\r\n" for _ in body) + "0\r\n\r\n", path=f"/{i}")
        else:
            wire += request(at, f"content-LENGTH:   {len(body)}  \r\nX-N:\t{i}\r\n", body, path=f"/{i}")
    wire += request(at, "Connection: close\r\n", method="GET", path="/last")
    answer = e.send(wire)
    assert answer.count(b"HTTP/1.1 200 OK") == 201
    assert [h.split()[1] for h, _ in s.requests] == [f"/{i}" for i in range(200)] + ["/last"]
    assert [len(b) for _, b in s.requests] == [i % 7 for i in range(200)] + [0]
    for i, (head, _) in enumerate(s.requests[:200]):
        expected = [f"POST /{i} HTTP/1.1", f"Host: {at}"] + (["Transfer-Encoding: chunked"] if i % 3 == 0
                                                            else [f"x-n: {i}", f"Content-Length: {i % 7}"])
        assert head.split("\r\n") == expected


def test_PX_12_nothing_decoded_becomes_a_line(proxied):
    e, s = proxied()
    at = f"api.test:{s.port}"
    e.send(request(at, "Connection: close\r\n", method="GET", path="/%0d%0aAuthorization:%20x?a=%0d%0aX:%20y"))
    head, _ = s.requests[0]
    assert head == f"GET /%0d%0aAuthorization:%20x?a=%0d%0aX:%20y HTTP/1.1\r\nHost: {at}"


def test_PX_13_fields_that_Connection_names_are_dropped_but_not_ours(proxied):
    e, s = proxied()
    at = f"api.test:{s.port}"
    e.send(request(at, "Connection: close, X-A, host, content-length\r\nX-A: 1\r\nX-B: 2\r\nContent-Length: 2\r\nKeep-Alive: 5\r\nTE: trailers\r\n", "ab"))
    head, body = s.requests[0]
    assert head.split("\r\n") == ["POST / HTTP/1.1", f"Host: {at}", "x-b: 2", "Content-Length: 2"] and body == b"ab"


def test_PX_14_Max_Forwards_is_refused(proxied):
    e, s = proxied()
    assert e.send(request(f"api.test:{s.port}", "Max-Forwards: 0\r\n", method="OPTIONS")).startswith(b"HTTP/1.1 405 ")
    assert not s.received


PATHS = ["/open/../shut", "/open/%2e%2e/shut", "/open/%2E%2e/shut", "/open/.%2e/shut", "/open/..%2fshut", "/open//shut", "/open/./shut", "/open/%5c..%5cshut",
         "/open\\..\\shut", "/open/%00", "/open/..;/shut", "/open/%252e%252e/shut", "//open/x", "/%6fpen/%2e%2e/shut"]


@pytest.mark.parametrize("path", PATHS)
def test_paths_with_two_readings_fit_no_rule_that_has_a_path(proxied, path):
    e, s = proxied(rules="allow http://api.test:{port}/open/* within=127.0.0.0/8")
    answer = e.send(request(f"api.test:{s.port}", method="GET", path=path))
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")), answer
    assert not s.received
    e, s = proxied()
    assert e.send(request(f"api.test:{s.port}", "Connection: close\r\n", method="GET", path=path)).startswith(b"HTTP/1.1 200")  # control


def test_PX_10_h2c_is_no_way_around(proxied):
    """PX-10: an upgrade to HTTP/2 is not asked for upstream, and its preface is no request."""
    e, s = proxied()
    at = f"api.test:{s.port}"
    answer = e.send(request(at, "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", method="GET"))
    assert answer.startswith(b"HTTP/1.1 200") and s.requests[0][0].lower().count("\r\n") == 1
    assert e.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert len(s.received) == 1
