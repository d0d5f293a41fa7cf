# SPDX-License-Identifier: Apache-2.0
"""Names by a real server of names, which answers as it likes: rebinding, mixed answers, silence (PX-01, PX-07)."""
import shutil
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path

import egress
import pytest

pytestmark = pytest.mark.needs("root")
A, AAAA = 1, 28


class Names:
    """A DNS server at port 53 of a loopback address. answers: {name: [[address, …], …]}: one list per question for A, the last for ever."""

    def __init__(self, address="127.0.0.153"):
        self.answers, self.asked, self.held = {}, [], []
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((address, 53))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        self.sock.sendto(b"", self.sock.getsockname())
        self.thread.join()
        self.sock.close()

    def serve(self):
        while True:
            data, who = self.sock.recvfrom(4096)
            if not data:
                return
            self.answer(data, who)

    def answer(self, data, who):
        reply = self.reply(data)
        if reply == "later":
            self.held.append((data, who))
        elif reply:
            self.sock.sendto(reply, who)

    def release(self, name, lists):
        """What was asked about NAME, whose answer was "later", is answered now."""
        self.answers[name] = lists
        held, self.held = self.held, []
        for data, who in held:
            self.answer(data, who)

    def reply(self, data):
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode())
            at += 1 + data[at]
        kind, = struct.unpack_from(">H", data, at + 1)
        name, question = ".".join(labels).lower(), data[12:at + 5]
        if kind == A:
            self.asked.append(name)
        lists = self.answers.get(name)
        if lists == "later":
            return lists
        if lists == "silence":
            return None
        if lists is None:
            return data[:2] + struct.pack(">HHHHH", 0x8183, 1, 0, 0, 0) + question
        addresses = [a for a in (lists.pop(0) if kind == A and len(lists) > 1 else lists[0]) if (":" in a) == (kind == AAAA)]
        if kind not in (A, AAAA):
            addresses = []
        records = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(raw)) + raw
                           for raw in (socket.inet_pton(socket.AF_INET6 if ":" in a else socket.AF_INET, a) for a in addresses))
        return data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(addresses), 0, 0) + question + records


@pytest.fixture
def names(proxied):
    """A server of names, and proxies that ask it: names.proxied(…)."""
    n = Names()
    folder = Path(tempfile.mkdtemp(prefix="clo-names."))
    n.options = "options timeout:1 attempts:1\n"
    (folder / "nsswitch.conf").write_text("hosts: files dns\n")
    script = "for f in resolv.conf nsswitch.conf; do mount --bind $0/$f /etc/$f || exit 1; done; exec \"$@\""

    def start(*arguments, **options):
        (folder / "resolv.conf").write_text("nameserver 127.0.0.153\n" + n.options)
        return proxied(*arguments, wrap=("unshare", "-m", "sh", "-c", script, str(folder)), **options)
    n.proxied = start
    yield n
    n.close()
    shutil.rmtree(folder)


def get(e, host, port):
    return e.send(f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n")


def test_a_name_is_resolved_by_DNS(names):
    e, s = names.proxied(rules="allow names.example:{port} within=127.0.0.0/8")
    names.answers["names.example"] = [["127.0.0.1"]]
    assert get(e, "names.example", s.port).startswith(b"HTTP/1.1 200")
    assert b"does not exist" in (get(e, "gone.example", s.port), e.policy(f"allow gone.example:{s.port}"), get(e, "gone.example", s.port))[2]


def test_PX_01_a_refused_name_is_never_asked_for(names):
    e, s = names.proxied(rules="allow names.example:{port} within=127.0.0.0/8")
    names.answers["names.example"] = [["127.0.0.1"]]
    for host in ("token.evil.example", "c2VjcmV0.names.example"):
        assert get(e, host, s.port).startswith(b"HTTP/1.1 403")
        assert e.connect(host, s.port)[1].startswith("HTTP/1.1 403")
        assert e.socks(host, s.port)[1] == 2
    assert get(e, "names.example", s.port).startswith(b"HTTP/1.1 200")
    assert names.asked == ["names.example"]


def test_PX_07_rebinding(names):
    """TTL 0; the second answer is another: what was checked is what was connected to, and what is asked anew is checked anew."""
    e, s = names.proxied(rules="allow names.example:{port} within=127.0.0.1/32")
    names.answers["names.example"] = [["127.0.0.1"], ["127.0.0.2"], ["10.0.0.1"]]
    for _ in range(3):
        assert get(e, "names.example", s.port).startswith(b"HTTP/1.1 200")
    assert names.asked == ["names.example"]  # one look-up for a while
    other, t = names.proxied(rules="allow names.example:{port} within=127.0.0.1/32")
    assert get(other, "names.example", t.port).startswith(b"HTTP/1.1 403") and not t.received
    other.flush()
    assert (other.records[0].verdict, other.records[0].address) == ("denied", "127.0.0.2")


@pytest.mark.parametrize("answer", [["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["127.0.0.1", "::1"],
                                    ["127.0.0.1", "fd00::1"], ["127.0.0.1", "::ffff:127.0.0.1"], ["127.0.0.1", "0.0.0.0"]])
def test_PX_07_one_answer_with_both(names, answer):
    e, s = names.proxied(rules="allow names.example:{port} within=127.0.0.0/8")
    names.answers["names.example"] = [answer]
    assert get(e, "names.example", s.port).startswith(b"HTTP/1.1 403")
    assert not s.received


def test_a_silent_server_of_names_holds_up_nobody(names):
    e, s = names.proxied(rules="allow **.example:{port} within=127.0.0.0/8")
    names.answers |= {"names.example": [["127.0.0.1"]], "silent.example": "silence"}
    assert get(e, "names.example", s.port).startswith(b"HTTP/1.1 200")  # its threads are there
    waiting = [e.dial() for _ in range(20)]
    for c in waiting:
        c.sendall(f"CONNECT silent.example:{s.port} HTTP/1.1\r\nHost: silent.example:{s.port}\r\n\r\n".encode())
    began = time.monotonic()
    assert get(e, "names.example", s.port).startswith(b"HTTP/1.1 200") and time.monotonic() - began < 3
    for c in waiting:
        with c:
            assert egress.read_head(c).startswith("HTTP/1.1 502")
    assert names.asked.count("silent.example") == 1


def test_only_the_name_that_was_judged_is_asked_for(names):
    """Not one that the search list of the machine's resolv.conf makes of it, also where it does not exist."""
    names.options += "search corp.example\n"
    names.answers["x.names.example.corp.example"] = names.answers["gone.corp.example"] = [["127.0.0.1"]]
    e, s = names.proxied(rules="allow **.names.example:{port} within=127.0.0.0/8\nallow gone:{port} within=127.0.0.0/8\nallow localhost:{port} within=127.0.0.0/8")
    for host in ("x.names.example", "gone"):
        assert get(e, host, s.port).startswith(b"HTTP/1.1 502")
    assert set(names.asked) == {"x.names.example", "gone"} and not s.received
    assert get(e, "localhost", s.port).startswith(b"HTTP/1.1 200")  # /etc/hosts


def test_an_answer_that_makes_room_for_the_next_question(names):
    """By TCP a second question waits for the first one's answer. By then as many names are known as may be, so that the second one's
    takes the place of the very look-up whose answer is being told."""
    names.options = "options timeout:15 attempts:1\n"
    names.answers |= {"first.example": "later", "second.example": [["127.0.0.1"]]}
    known = {f"n{i}.test": ["127.0.0.1"] for i in range(255)}
    e, _ = names.proxied(rules="allow **.example\nallow **.test", resolve=known, kinds=("dns", "dns_tcp"))
    import test_egress_capture as capture
    with e.dial("dns_tcp") as c, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
        u.settimeout(10)
        u.connect(e.addresses["dns"])
        for name in ("first.example", "second.example"):
            message = capture.question(name, A)
            c.sendall(struct.pack(">H", len(message)) + message)
        while not names.held:
            time.sleep(0.01)
        for name in known:
            u.send(capture.question(name, A))
            assert capture.answer(u.recv(600))[0] == capture.OK
        assert names.held
        names.release("first.example", None)
        answers = []
        for _ in range(2):
            size, = struct.unpack(">H", egress.read_exactly(c, 2))
            answers.append(capture.answer(egress.read_exactly(c, size)))
        assert answers[0] == (capture.NXDOMAIN, [])
        assert answers[1][0] == capture.OK and len(answers[1][1]) == 1
    assert e.process.poll() is None


def test_the_resolver_inside_asks_outside_when_it_is_asked(names, netns):
    e, s = names.proxied(egress.echo, rules="allow names.example:{port} within=127.0.0.0/8\nallow gone.example", netns=netns,
                         kinds=("proxy", "dns"))
    names.answers["names.example"] = [["127.0.0.1"], ["10.0.0.1"]]
    import test_egress_capture as capture
    code, (address, ) = capture.resolve(netns, "names.example")
    assert code == capture.OK and capture.resolve(netns, "gone.example") == (capture.NXDOMAIN, [])
    c, code = e.socks(str(address), s.port, kind=1)
    with c:
        c.sendall(b"abc")
        assert code == 0 and egress.read_exactly(c, 3) == b"abc"
    assert names.asked == ["names.example", "gone.example"]
