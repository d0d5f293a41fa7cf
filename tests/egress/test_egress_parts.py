# SPDX-License-Identifier: Apache-2.0
"""The parsers of cloche-egress against real clients and second parsers: ClientHellos of openssl, curl, Python and Node, DNS by dnspython
and dig, redaction by what Python's own encoders make of a secret."""
import base64
import html
import json
import random
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import urllib.parse
from pathlib import Path

import cloche
import egress
import pytest

dns = pytest.importorskip("dns.message", reason="python3-dnspython is not installed")
import dns.exception  # noqa: E402
import dns.flags  # noqa: E402
import dns.name  # noqa: E402
import dns.opcode  # noqa: E402
import dns.rdataclass  # noqa: E402
import dns.rdatatype  # noqa: E402

HELLO_MAX = 16 << 10


class Part:
    """egress-parts NAME: part(data) → the fields of its line."""

    def __init__(self, *arguments):
        program = Path(cloche.binary()).parent / "tests" / "egress-parts"
        self.process = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, data):
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().split(" ")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def hello():
    with Part("hello") as part:
        yield lambda data: tuple(f.strip() for f in part(data))


# ------------------------------------------------------------------------------------------------------------- ClientHello


def caught(start):
    """The first bytes that a client sends to a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        client = start(listener.getsockname()[1])
        s, _ = listener.accept()
        with s:
            s.settimeout(20)
            data = s.recv(65536)
            while len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5], "big"):
                data += s.recv(65536)
        if client:
            client.kill()
            client.wait()
        return data


def run(*command):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def openssl(*options):
    return lambda port: run("openssl", "s_client", "-connect", f"127.0.0.1:{port}", *options)


def curl(*options):
    return lambda port: run("curl", "-sk", "--noproxy", "*", "--connect-to", f"api.test:443:127.0.0.1:{port}", *options, "https://api.test/")


def node(options):
    return lambda port: run("node", "-e", f"require('tls').connect({{host: '127.0.0.1', port: {port}, rejectUnauthorized: false, {options}}})"
                                          ".on('error', () => {})")


def python(name, alpn=None, most=None):
    def start(port):
        context = ssl._create_unverified_context()
        if alpn:
            context.set_alpn_protocols(alpn)
        if most:
            context.maximum_version = most

        def talk():
            try:
                with socket.create_connection(("127.0.0.1", port)) as s, context.wrap_socket(s, server_hostname=name):
                    pass
            except OSError:
                pass
        threading.Thread(target=talk, daemon=True).start()
    return start


CLIENTS = {
    "openssl": (openssl("-servername", "api.test"), "api.test", "1"),
    "openssl-upper": (openssl("-servername", "API.Test"), "api.test", "1"),
    "openssl-no-name": (openssl("-noservername"), "-", "1"),
    "openssl-1.2": (openssl("-servername", "api.test", "-tls1_2"), "api.test", "1"),
    "openssl-h2": (openssl("-servername", "api.test", "-alpn", "h2"), "api.test", "0"),
    "openssl-both": (openssl("-servername", "api.test", "-alpn", "h2,http/1.1"), "api.test", "1"),
    "openssl-groups": (openssl("-servername", "api.test", "-groups", "P-521:P-384:X25519:X448:ffdhe8192"), "api.test", "1"),
    "openssl-status": (openssl("-servername", "api.test", "-status"), "api.test", "1"),
    "curl": (curl(), "api.test", "1"),
    "curl-1.1": (curl("--http1.1"), "api.test", "1"),
    "curl-h2": (curl("--http2-prior-knowledge"), "api.test", "1"),  # offers none
    "curl-1.3": (curl("--tlsv1.3"), "api.test", "1"),
    "python": (python("api.test"), "api.test", "1"),
    "python-alpn": (python("api.test", ["h2", "http/1.1"]), "api.test", "1"),
    "python-h2": (python("api.test", ["h2"]), "api.test", "0"),
    "python-1.2": (python("api.test", most=ssl.TLSVersion.TLSv1_2), "api.test", "1"),
    "python-no-name": (python(None), "-", "1"),
    "node": (node("servername: 'api.test'"), "api.test", "1"),
    "node-h2": (node("servername: 'api.test', ALPNProtocols: ['h2']"), "api.test", "0"),
    "node-no-name": (node("servername: ''"), "-", "1"),
}


@pytest.fixture(scope="module")
def hellos():
    return {}


def hello_of(name, hellos):
    program = name.split("-")[0]
    if program in ("openssl", "curl", "node") and not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    if name not in hellos:
        hellos[name] = caught(CLIENTS[name][0])
    return hellos[name]


def fragments(data, size):
    body = data[5:]
    return b"".join(data[:3] + struct.pack(">H", len(body[i:i + size])) + body[i:i + size] for i in range(0, len(body), size))


@pytest.mark.parametrize("name", CLIENTS)
def test_PX_08_hellos_of_real_clients(name, hello, hellos):
    data, (_, host, http1) = hello_of(name, hellos), CLIENTS[name]
    assert hello(data) == ("1", host, "0", http1)
    for cut in [*range(0, 12), *range(12, len(data), 13), len(data) - 1]:
        assert hello(data[:cut])[0] == "0", cut
    for size in (1, 2, 5, 37, 100, 200):
        assert hello(fragments(data, size)) == ("1", host, "0", http1), size
        assert hello(fragments(data, size)[:-1])[0] == "0"
    assert hello(data + b"\x17\x03\x03\x00\x10" + bytes(16)) == ("1", host, "0", http1)  # early data behind it


def extension(kind, body):
    return struct.pack(">HH", kind, len(body)) + body


def sni(*names, kind=0):
    entries = b"".join(bytes([kind]) + struct.pack(">H", len(n)) + n for n in names)
    return extension(0, struct.pack(">H", len(entries)) + entries)


def message(extensions, session=b"", ciphers=b"\x13\x01", compressions=b"\0"):
    body = (b"\x03\x03" + bytes(32) + bytes([len(session)]) + session + struct.pack(">H", len(ciphers)) + ciphers +
            bytes([len(compressions)]) + compressions)
    if extensions is not None:
        body += struct.pack(">H", len(extensions)) + extensions
    return b"\x01" + len(body).to_bytes(3, "big") + body


def record(data, version=b"\x03\x01", kind=22):
    return bytes([kind]) + version + struct.pack(">H", len(data)) + data


NAME = sni(b"api.test")
ALPN = extension(16, b"\0\x09\x08http/1.1")


def test_what_is_tolerated(hello):
    grease = extension(0x0a0a, b"") + extension(0xfafa, b"\0")
    assert hello(record(message(grease + NAME + grease))) == ("1", "api.test", "0", "1")
    assert hello(record(message(None))) == ("1", "-", "0", "1")
    assert hello(record(message(b""))) == ("1", "-", "0", "1")
    assert hello(record(message(sni(b"api.test.")))) == ("1", "api.test", "0", "1")
    assert hello(record(message(NAME + extension(16, b"\0\x0c\x02h2\x08http/1.1")))) == ("1", "api.test", "0", "1")
    assert hello(record(message(NAME + extension(16, b"\0\x03\x02h2")))) == ("1", "api.test", "0", "0")
    for kind in (0xfe0d, 0xffce):
        assert hello(record(message(NAME + extension(kind, bytes(40))))) == ("1", "api.test", "1", "1")
    big = message(NAME + extension(21, bytes(16000)))
    assert hello(record(big)) == ("1", "api.test", "0", "1")


REFUSED = {
    "two names": record(message(sni(b"api.test", b"other.test"))),
    "the same name twice": record(message(sni(b"api.test", b"api.test"))),
    "two extensions": record(message(NAME + sni(b"other.test"))),
    "another kind of name": record(message(sni(b"api.test", kind=1))),
    "no name in it": record(message(extension(0, b"\0\0"))),
    "an empty extension": record(message(extension(0, b""))),
    "an empty name": record(message(sni(b""))),
    "bytes behind the list": record(message(extension(0, b"\0\x0b\0\0\x08api.testx"))),
    "a name with a NUL": record(message(sni(b"api.test\0.evil.test"))),
    "a name with a slash": record(message(sni(b"api.test/x"))),
    "a name with a blank": record(message(sni(b"api.test "))),
    "a wildcard": record(message(sni(b"*.test"))),
    "an address": record(message(sni(b"127.0.0.1"))),
    "an IPv6 address": record(message(sni(b"::1"))),
    "another address": record(message(sni(b"0x7f000001"))),
    "not ASCII": record(message(sni("äpi.test".encode()))),
    "too long": record(message(sni(b"a" * 64 + b".test"))),
    "ALPN twice": record(message(NAME + ALPN + ALPN)),
    "ALPN empty": record(message(NAME + extension(16, b"\0\0"))),
    "ALPN with an empty protocol": record(message(NAME + extension(16, b"\0\x01\0"))),
    "ALPN cut": record(message(NAME + extension(16, b"\0\x09\x08http"))),
    "ECH twice": record(message(NAME + extension(0xfe0d, b"") * 2)),
    "an extension longer than the rest": record(message(NAME + b"\0\x2b\0\xff")),
    "half an extension": record(message(NAME + b"\0\x2b\0")),
    "no cipher": record(message(NAME, ciphers=b"")),
    "half a cipher": record(message(NAME, ciphers=b"\x13")),
    "no compression": record(message(NAME, compressions=b"")),
    "a long session": record(message(NAME, session=bytes(33))),
    "a message behind it in its record": record(message(NAME) + b"\x0b\0\0\0"),
    "a ServerHello": record(b"\x02" + message(NAME)[1:]),
    "an alert before it": record(b"\x02\x28", kind=21) + record(message(NAME)),
    "an alert within": record(message(NAME)[:20]) + record(b"\x01\0", kind=21) + record(message(NAME)[20:]),
    "an empty record": record(b"") + record(message(NAME)),
    "an empty record within": record(message(NAME)[:20]) + record(b"") + record(message(NAME)[20:]),
    "another version": record(message(NAME), version=b"\x02\x00"),
    "SSL 2": b"\x80\x2e\x01\x00\x02" + bytes(44),
    "HTTP": b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n",
    "SSH": b"SSH-2.0-x\r\n",
    "16 KiB": record(message(NAME + extension(21, bytes(16384)))),
    "announced too large": record(b"\x01\xff\xff\xff" + bytes(16)),
    "a record too large": b"\x16\x03\x01\x40\x01" + message(NAME),
    "sixteen thousand bytes, one each": fragments(record(message(NAME + extension(21, bytes(4000)))), 1),
    "the next record in it": record(message(NAME)[:20]) + record(message(NAME)[20:] + b"x"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_PX_08_refused_hellos(what, hello):
    assert hello(REFUSED[what])[0] == "-74"


def openssl_name(data):
    """The name that OpenSSL reads, None without one; False where it refuses."""
    seen = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda s, name, c: seen.append(name) or ssl.ALERT_DESCRIPTION_ACCESS_DENIED
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    i.write(data)
    try:
        context.wrap_bio(i, o, server_side=True).do_handshake()
    except (ssl.SSLError, ValueError, UnicodeError):
        pass
    return seen[0] if seen else False


def test_PX_08_never_another_name_than_openssl_reads(hello, hellos):
    """Mutations of real hellos: where OpenSSL reads a name, ours is the same or a refusal."""
    rng, compared, refused = random.Random(6), 0, 0
    for name in ("openssl", "python-alpn", "curl", "node", "openssl-no-name"):
        data = hello_of(name, hellos)
        for _ in range(4000):
            m = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 3))):
                at = rng.randrange(len(m))
                m[at] = rng.choice((0, 1, 255, rng.randrange(256), m[at] ^ 1 << rng.randrange(8)))
            result, host, _, _ = hello(bytes(m))
            theirs = openssl_name(bytes(m))
            if theirs is False:
                continue
            compared += 1
            if result == "1":
                assert host == (theirs or "-").lower().rstrip("."), bytes(m).hex()
            else:
                refused += 1
    assert compared > 8000 and refused < compared / 2, (compared, refused)


# --------------------------------------------------------------------------------------------------------------------- DNS

def dnspython(data):
    """(type, name) of what dnspython takes for a question with one entry in class IN, or None."""
    try:
        m = dns.message.from_wire(data, question_only=False)
    except (dns.exception.DNSException, ValueError, struct.error):
        return None
    if len(m.question) != 1 or m.flags & dns.flags.QR or m.opcode() != dns.opcode.QUERY:
        return None
    q = m.question[0]
    return int(q.rdtype), q.name, q.rdclass


def test_dns_never_more_lenient_than_dnspython():
    rng = random.Random(6)
    names = ("a.test", "www.Example.org", "x" * 63 + ".test", "_srv._tcp.a.test", ".", "127.0.0.1", "a\\.b.test", "1.0.0.127.in-addr.arpa")
    taken = refused = 0
    with Part("dns") as part:
        for n in range(20000):
            q = dns.message.make_query(rng.choice(names), rng.choice(("A", "AAAA", "TXT", "MX", "HTTPS", "SVCB", "PTR", "ANY")))
            if rng.random() < .5:
                q.use_edns(0, payload=1232)
            m = bytearray(q.to_wire())
            for _ in range(n % 4):
                m[rng.randrange(len(m))] = rng.choice((0, 1, 2, 0x3f, 0xc0, 255, rng.randrange(256)))
            if rng.random() < .1:
                m = m[:rng.randrange(len(m))]
            result, ident, kind, host, answer = part(bytes(m))
            if result != "0":
                refused += 1
                assert n % 4 or len(m) < len(q.to_wire()), m.hex()
                continue
            theirs = dnspython(bytes(m))
            assert theirs, m.hex()
            rdtype, name, rdclass = theirs
            assert (int(ident), int(kind)) == (int.from_bytes(m[:2], "big"), rdtype)
            if host != "-":
                assert name.to_text(omit_final_dot=True).lower() == host and rdclass == dns.rdataclass.IN
            check_answer(bytes(m), bytes.fromhex(answer), host, rdtype)
            taken += 1
    assert taken > 5000 and refused > 3000, (taken, refused)


def check_answer(question, answer, host, rdtype):
    """dnspython takes it for an answer to that question."""
    a = dns.message.from_wire(answer)
    q = dns.message.from_wire(question)
    assert q.is_response(a) and not a.authority and not a.additional
    if host == "-":
        assert a.rcode() == 5 and not a.answer
    elif rdtype == dns.rdatatype.A:
        assert [r.to_text() for r in a.answer[0]] == ["198.18.0.1"] and a.answer[0].name == a.question[0].name
    else:
        assert a.rcode() == 0 and not a.answer


def dig(netns, *arguments):
    out = subprocess.run(["dig", "+tries=1", "+time=5", *arguments], capture_output=True, text=True, preexec_fn=netns.enter, timeout=60)
    status = re.search(r"status: (\w+)", out.stdout)
    assert "Warning" not in out.stdout + out.stderr and "malformed" not in out.stdout.lower(), out.stdout
    return (status[1] if status else out.stdout), re.findall(r"[ \t]IN[ \t]+A[ \t]+(\S+)", out.stdout)


@pytest.mark.needs("dig")
def test_dig(netns):
    with egress.Egress(rules="allow api.test", resolve={"api.test": ["192.0.2.1"]}, kinds=("dns", "dns_tcp"), netns=netns) as e:
        at = ("@198.51.100.53", )
        status, addresses = dig(netns, *at, "api.test")
        assert status == "NOERROR" and len(addresses) == 1 and addresses[0].startswith("198.18.")
        for more in (("+noedns", ), ("+tcp", ), ("+dnssec", ), ("+cookie", ), ("+nocookie", "+bufsize=512"), ("+norecurse", ),
                     ("+padding=128", )):
            assert dig(netns, *at, "API.test.", *more) == ("NOERROR", addresses), more
        for kind in ("AAAA", "TXT", "MX", "HTTPS", "SVCB", "ANY", "NS"):
            assert dig(netns, *at, "api.test", kind) == ("NOERROR", []), kind
        for name in ("other.test", "a.api.test", "xapi.test", "secret.other.test"):
            assert dig(netns, *at, name) == ("REFUSED", []), name
        assert dig(netns, *at, "-x", "127.0.0.1") == ("REFUSED", [])
        assert dig(netns, *at, "version.bind", "TXT", "CHAOS") == ("REFUSED", [])
        assert "other.test" in [r.host for r in e.records] or e.flush() and "other.test" in [r.host for r in e.records]


# -------------------------------------------------------------------------------------------------------------- redaction

SECRET = 'Tok3n/with+all "kinds" of\\bytes & <more>=~'
SPELT = {
    "itself": lambda s: s,
    "quote": urllib.parse.quote,
    "quote all": lambda s: urllib.parse.quote(s, safe=""),
    "quote_plus": urllib.parse.quote_plus,
    "urlencode": lambda s: urllib.parse.urlencode({"q": s}),
    "json": json.dumps,
    "every byte": lambda s: "".join(f"%{ord(c):02x}" for c in s),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 of a header": lambda s: base64.b64encode(f"Authorization: {s}".encode()).decode(),
    "base64 in json": lambda s: json.dumps(base64.b64encode(s.encode()).decode()).replace("/", "\\/"),
    "base64 quoted": lambda s: urllib.parse.quote(base64.b64encode(s.encode()).decode(), safe=""),
    "urlsafe": lambda s: base64.urlsafe_b64encode(("x" + s).encode()).decode(),
}


@pytest.mark.parametrize("how", SPELT)
def test_PX_14_what_encoders_make_of_a_secret_is_redacted(how):
    spelt = SPELT[how](SECRET)
    with Part("redact", SECRET) as part:
        out = bytes.fromhex(part(f"before {spelt} after".encode())[0]).decode()
    assert out.startswith("before ") and out.endswith(" after") and len(out) == len(spelt) + 13
    left = out[7:-6].strip('"q=')
    assert set(left) == {"*"} or how.startswith(("base64", "urlsafe")) and len(left.replace("*", "")) <= 28, left
    for piece in ("Tok3n", "kinds", "more", "bytes"):
        assert piece not in html.unescape(urllib.parse.unquote_plus(out))
