# SPDX-License-Identifier: Apache-2.0
"""The proxy's reading of requests against a second parser, Python's h11: what h11 refuses, the proxy refuses, and what both take, both read
alike. Requests are made from good ones by changes that attackers make, from a fixed seed.

    CLOCHE_H11=1000000 CLOCHE_H11_SEED=7 /usr/bin/python3 -m pytest tests/egress/test_egress_h11.py     more, others
"""
import os
import random
import struct
import subprocess
from pathlib import Path

import cloche
import pytest

h11 = pytest.importorskip("h11")
COUNT, SEED = int(os.environ.get("CLOCHE_H11", 100_000)), int(os.environ.get("CLOCHE_H11_SEED", 20261130))
FRONT = Path(cloche.binary()).parent / "tests" / "egress" / "egress-front"

METHODS = ["GET"] * 6 + ["POST"] * 6 + ["PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "get", "G ET", "", "M-SEARCH", "\tGET", "GET\0"]
TARGETS = ["http://api.test/"] * 8 + ["http://api.test/a?b=c", "http://api.test:80/", "http://API.test/x", "api.test:443", "/", "*", "http://api.test",
                                      "http://u@api.test/", "http://api.test/ x", "http://api.test/\x01", "http://api.test/\xe9", "http://api.test/#f", ""]
VERSIONS = ["HTTP/1.1"] * 12 + ["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/1.1 ", "HTTP/01.1", "http/1.1", "HTTP/1", ""]
HOSTS = ["Host: api.test"] * 14 + ["host:api.test", "Host: API.TEST", "Host : api.test", "Host: api.test\r\nHost: api.test", "Host: a b", "", "Host:", "Host: \tapi.test \t"]
ENDS = ["\r\n"] * 40 + ["\n", "\r", "\r\r\n", "\n\r", "\0\r\n", "\x0b\r\n", " \r\n"]
FIELDS = ["X: a", "x-y:b", "X: a b\tc", "X:", "X: \xe9", "X: a\0b", "X: a\x7fb", "X: a\rb", "X: a\nb", "X : a", " X: a", "X: a\r\n b", "X\xe9: a", "X", ": a", "X Y: a",
          "Connection: close", "Connection: keep-alive", "Expect: 100-continue", "Expect: x", "Upgrade: websocket", "X(: a", "X: a\x0bb", "X: a\x0cb", "X\t: a",
          "TE: trailers", "Trailer: X", "Content-Type: text/plain", "Cookie: a=b; c=d", "\tX: a", "X:\r\n\ta", "Transfer-Encoding: chunked", "Content-Length: 3"]
LENGTHS = ["{}"] * 20 + ["+{}", "-{}", "0x{}", "{}.0", " {} ", "{},{}", "0{}", "{}_0", "{}\0", "", "{} 1", "\x0b{}", "99999999999999999999", "{}\r\nContent-Length: {}",
                         "{}\r\ncontent-length: 1", "\u0661".encode().decode("latin-1")]
CODINGS = ["chunked"] * 20 + ["Chunked", "xchunked", "chunked ", "\tchunked", "chunked\x0b", "\x0bchunked", "identity", "gzip, chunked", "chunked, identity", "chunked, chunked", "",
                              "\"chunked\"", "chunked;q=1", "chunked\r\nTransfer-Encoding: chunked", "chunked\r\nContent-Length: 3", "chunked\0", "ch unked"]
SIZES = ["{:x}"] * 24 + ["{:X}", "0{:x}", "0x{:x}", "+{:x}", "-{:x}", " {:x}", "{:x} ", "{:x}\t", "{:x};a=b", "{:x};a=\"b\"", "{:x} ;a", "{:x};\n", "{:x};\r", "", "{:x}g", "{:x}\0",
                         "00000000000000000000{:x}", "{:x};" + "e" * 300, "{:x}\x0b", "{:x};a\nb"]
TRAILERS = [""] * 30 + ["X: y\r\n", "Host: evil\r\n", "X\r\n", " X: y\r\n"]


def pick(r, of, chance=1.0):
    """One of them, or mostly the first kind: requests have to be right in most places to be wrong in an interesting one."""
    return r.choice(of) if r.random() < chance else of[0]


def chunked(r):
    out = ""
    for _ in range(r.randrange(4)):
        data = "x" * r.randrange(1, 6)
        out += pick(r, SIZES, .3).format(len(data)) + pick(r, ENDS, .1) + data + pick(r, ENDS, .1)
    return out + pick(r, ["0"] * 20 + ["00", "0;a", "-0", "0x0", "0 "], .2) + pick(r, ENDS, .1) + pick(r, TRAILERS, .1) + pick(r, ENDS, .1)


def request(r):
    method = pick(r, METHODS, .5)
    target = "api.test:443" if method == "CONNECT" and r.random() < .8 else pick(r, TARGETS, .4)
    out = method + pick(r, [" "] * 20 + ["  ", "\t", ""], .1) + target + pick(r, [" "] * 20 + ["  ", "\t"], .1) + pick(r, VERSIONS, .2) + pick(r, ENDS, .05)
    host = pick(r, HOSTS, .25)
    fields = [host] if host else []
    fields += [pick(r, FIELDS, .9) for _ in range(r.choice([0, 0, 1, 1, 2, 3]))]
    body = ""
    kind = r.random()
    if kind < .35:
        data = "y" * r.randrange(5)
        fields.append("Content-Length: " + pick(r, LENGTHS, .3).replace("{}", str(len(data))))
        body = data
    elif kind < .75:
        fields.append("Transfer-Encoding: " + pick(r, CODINGS, .3))
        body = chunked(r)
    r.shuffle(fields)
    return out + "".join(f + pick(r, ENDS, .03) for f in fields) + pick(r, ENDS, .05) + body


def mutate(r, data):
    """A byte more, less, or another, now and then."""
    if r.random() < .15 and data:
        at = r.randrange(len(data))
        byte = bytes([r.choice(b"\r\n\0 \t:;,0aA\x7f\x80\xff-+") if r.random() < .8 else r.randrange(256)])
        data = r.choice([data[:at] + byte + data[at:], data[:at] + data[at + 1:], data[:at] + byte + data[at + 1:]])
    return data


def generate(seed, count):
    r = random.Random(seed)
    for _ in range(count):
        data = "".join(request(r) for _ in range(r.choice([1, 1, 1, 2, 3]))).encode("latin-1")
        yield mutate(r, data)


def read_by_h11(data):
    """[(method, target, fields, body)] of the requests that it takes whole, and whether it refuses what comes then."""
    c = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    taken, now, body = [], None, b""
    c.receive_data(data)
    try:
        while True:
            event = c.next_event()
            if event is h11.NEED_DATA:
                return taken, False
            if event is h11.PAUSED:
                if c.our_state is h11.MIGHT_SWITCH_PROTOCOL or c.their_state is h11.MIGHT_SWITCH_PROTOCOL:
                    if now.method == b"CONNECT":
                        return taken, False
                    c.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                    c.send(h11.EndOfMessage())
                if c.our_state is h11.SEND_RESPONSE or c.our_state is h11.SEND_BODY:
                    return taken, False
                if c.our_state is not h11.DONE or c.their_state is not h11.DONE:
                    return taken, False
                c.start_next_cycle()
            elif isinstance(event, h11.Request):
                now, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                if event.headers:
                    return taken, True  # trailers: nobody's request here
                taken.append((now.method, now.target, list(now.headers), body))
                if c.our_state is h11.SEND_RESPONSE and now.method != b"CONNECT":
                    c.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                    c.send(h11.EndOfMessage())
                if c.our_state is h11.MUST_CLOSE or c.their_state is h11.MUST_CLOSE:
                    return taken, False
            else:
                return taken, False
    except h11.RemoteProtocolError:
        return taken, True


def unhex(text):
    return b"" if text == "-" else bytes.fromhex(text)


def read_by_us(line):
    *requests, why = line.split(";")
    taken = []
    for text in requests:
        method, target, fields, body = text.split(" ")
        pairs = [tuple(f.split(b":", 1)) for f in unhex(fields).split(b"\n")[:-1]]
        pairs = [(n, v.lower() if n == b"transfer-encoding" else v) for n, v in pairs]  # as h11 gives it
        taken.append((method.encode(), unhex(target), pairs, unhex(body)))
    return taken, why


def front(inputs):
    data = b"".join(struct.pack("<I", len(i)) + i for i in inputs)
    done = subprocess.run([FRONT], input=data, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return [read_by_us(line) for line in done.stdout.decode().splitlines()]


def test_the_proxy_is_never_more_lenient_than_h11():
    inputs = list(generate(SEED, COUNT))
    ours = front(inputs)
    assert len(ours) == len(inputs) == COUNT
    both = refused_by_both = stricter = 0
    for data, (taken, why) in zip(inputs, ours):
        theirs, refused = read_by_h11(data)
        assert len(taken) <= len(theirs), f"taken by us alone: {data!r}\nus {taken} {why}\nh11 {theirs} {refused}"
        for mine, other in zip(taken, theirs):
            assert mine == other, f"read in two ways: {data!r}\nus {mine}\nh11 {other}"
        both += len(taken)
        refused_by_both += why == "bad" and refused
        stricter += len(taken) < len(theirs)
    # The comparison is of something: much is taken by both, much refused by both, and we are the stricter ones now and then.
    assert both > COUNT / 4 and refused_by_both > COUNT / 20 and stricter > COUNT / 100, (both, refused_by_both, stricter)


def test_the_comparison_sees_a_lenient_parser():
    """Control: read as if a bare LF ended a line, which h11 takes and we do not; and as if CL won over TE."""
    smuggled = b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET"
    assert front([smuggled])[0] == ([], "bad")
    assert read_by_h11(smuggled.replace(b"Transfer-Encoding: chunked\r\n", b""))[0]
    good = b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n"
    assert front([good]) == [(read_by_h11(good)[0], "end")] and read_by_h11(good)[0][0][3] == b"abc"
    for bad in (b"GET http://api.test/ HTTP/1.1\r\nHost : api.test\r\n\r\n", b"GET http://api.test/ HTTP/1.1\r\n\r\n"):
        assert read_by_h11(bad) == ([], True) and front([bad]) == [([], "bad")]
