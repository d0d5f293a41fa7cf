# SPDX-License-Identifier: Apache-2.0
"""How cloche-egress is told what to do and tells what happened (wire.h), a policy that changes (PX-20), and what it has given up (PX-23)."""
import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import cloche
import egress
import pytest

sys.path.insert(0, str(cloche.TOP / "tests" / "abuse"))
import arena  # noqa: E402

LOOPBACK = "within=127.0.0.0/8"
GOLDEN = cloche.TOP / "tests" / "golden" / "seccomp-egress.x86_64.txt"
LIST = cloche.TOP / "src" / "egress" / "self_calls.def"


def get(host, path="/"):
    return f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


# ----------------------------------------------------------------------------------------------------------- its beginning


GOOD = {"mode": "allow", "rules": "", "ceiling": "", "ceiling_mode": "open", "resolve": {}, "upstream_ca": None, "credentials": [], "capture": "ports"}
KEY = {"name": "k", "host": "api.test", "header": "X-Key", "value": "secret-value"}
BAD = {
    "no JSON": "{",
    "no object": "[]",
    "a key too many": {**GOOD, "more": 1},
    "a key too few": {k: v for k, v in GOOD.items() if k != "ceiling"},
    "a mode that is none": {**GOOD, "mode": "host"},
    "mode of another kind": {**GOOD, "mode": 1},
    "rules of another kind": {**GOOD, "rules": ["allow a.test"]},
    "a rule that is none": {**GOOD, "rules": "allow *"},
    "a ceiling that is none": {**GOOD, "ceiling": "allow *"},
    "capture of another kind": {**GOOD, "capture": "all"},
    "an address that is none": {**GOOD, "resolve": {"a.test": ["127.1"]}},
    "addresses that are no list": {**GOOD, "resolve": {"a.test": "127.0.0.1"}},
    "a name that is not canonical": {**GOOD, "resolve": {"A.test": ["127.0.0.1"]}},
    "a credential nobody has": {**GOOD, "rules": "credential other", "credentials": [KEY]},
    "a credential for no host": {**GOOD, "credentials": [{**KEY, "host": "*.test"}]},
    "a credential in two places": {**GOOD, "credentials": [{**KEY, "query": "q"}]},
    "a credential in no place": {**GOOD, "credentials": [{k: v for k, v in KEY.items() if k != "header"}]},
    "a credential with a line": {**GOOD, "credentials": [{**KEY, "value": "secret-value\r\nX: y"}]},
    "a credential in a field that is none": {**GOOD, "credentials": [{**KEY, "header": "X Key"}]},
    "an empty credential": {**GOOD, "credentials": [{**KEY, "value": ""}]},
    "a credential's key too many": {**GOOD, "credentials": [{**KEY, "more": 1}]},
    "a port that is none": {**GOOD, "credentials": [{**KEY, "port": 65536}]},
    "too many credentials": {**GOOD, "credentials": [{**KEY, "name": f"k{i}"} for i in range(33)]},
    "a key twice": '{"mode":"allow","mode":"open","rules":"","ceiling":"","ceiling_mode":"open","resolve":{},"upstream_ca":null,"credentials":[],"capture":"ports"}',
    "an upstream_ca that is none": {**GOOD, "rules": "allow GET https://a.test/*", "upstream_ca": "no certificate"},
    "too large": " " * (1 << 20) + "{}",
    "empty": "",
}


@pytest.mark.parametrize("name", BAD)
def test_a_configuration_that_is_no_good_is_refused(name):
    raw = BAD[name] if isinstance(BAD[name], str) else json.dumps(BAD[name])
    e = egress.Egress(raw=raw or b"")
    try:
        with pytest.raises(egress.Refused) as refused:
            e.start()
        assert len(str(refused.value)) > 8 and "secret-value" not in str(refused.value)
    finally:
        e.close()
    assert e.process.returncode == 1 and "secret-value" not in e.errors


def test_the_good_one_is_not_refused():
    e = egress.Egress(raw=json.dumps({**GOOD, "credentials": [KEY]}))
    try:
        e.start()
    finally:
        e.close()


def test_a_configuration_that_could_still_change_is_refused(monkeypatch):
    sealed = egress.memfd
    monkeypatch.setattr(egress, "memfd", lambda text: sealed(text, seal=False))
    e = egress.Egress()
    try:
        with pytest.raises(egress.Refused, match="sealed"):
            e.start()
    finally:
        e.close()


@pytest.mark.parametrize("message", [b"", b"x", struct.pack("<IIIIII", 99, 1, 1, 1, 1, 0), struct.pack("<IIIII", 1, 1, 1, 1, 1)])
def test_a_starter_that_speaks_something_else(message):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, subprocess.Popen([egress.binary(), str(theirs.fileno())], pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as p:
        theirs.close()
        ours.send(message)
        assert p.wait(20) == 1 and b"cloche-egress: " in p.stderr.read()


def test_another_version_is_refused(monkeypatch):
    pack = struct.pack
    monkeypatch.setattr(egress.struct, "pack", lambda f, *v: pack(f, *(v[:2] + (2, ) + v[3:] if f == "<IIIIII" else v)))
    e = egress.Egress()
    try:
        with pytest.raises(egress.Refused, match="version 2"):
            e.start()
    finally:
        e.close()


def test_usage():
    for arguments in ([], ["x"], ["-1"], ["3", "4"]):
        done = subprocess.run([egress.binary(), *arguments], capture_output=True, text=True, timeout=20)
        assert done.returncode == 2 and "is started by" in done.stderr
    assert subprocess.run([egress.binary(), "77"], capture_output=True, timeout=20).returncode == 1


# ------------------------------------------------------------------------------------------------------------- its end


def test_it_ends_when_its_control_socket_is_hung_up_on(proxied):
    e, _ = proxied()
    e.control.sock.close()
    assert e.process.wait(5) == 0


def test_it_ends_when_init_has_died_and_its_records_are_acknowledged(proxied):
    e, s = proxied(egress.echo, control="listening")
    tunnel, _ = e.connect("api.test", s.port)
    with tunnel:
        e.send(get("no.test"))
        e.init.kill()
        assert egress.is_reset(tunnel)
    with pytest.raises(OSError):
        e.dial()
    totals = e.flush()
    assert (totals.allowed, totals.denied, totals.open) == (1, 1, 0) and len(e.records) == 2
    assert e.process.poll() is None
    e.control.ack(e.records[-1].number)
    assert e.process.wait(5) == 0


def test_it_ends_at_last_without_being_asked(proxied):
    e, _ = proxied(control="listening", watch=False)
    e.send(get("no.test"))
    began = time.monotonic()
    e.init.kill()
    assert e.process.wait(20) == 0 and 8 < time.monotonic() - began < 15


def test_PX_20_its_death_denies_everything(proxied):
    e, s = proxied(egress.echo)
    tunnel, _ = e.connect("api.test", s.port)
    e.kill()
    with tunnel:
        assert egress.drain(tunnel) in (b"", b"RESET")
    with pytest.raises(OSError):
        e.dial()
    e.process.returncode = 0  # which the driver would complain about


# ------------------------------------------------------------------------------------------------------------- records


def test_records_are_kept_until_they_are_acknowledged(proxied):
    e, _ = proxied(control="listening", watch=False)
    for i in range(5):
        e.send(get(f"n{i}.test"))
    assert e.flush().denied == 5 and not e.records  # who does not watch gets none
    first = e.client()
    first.watch()
    first.flush()
    assert [r.number for r in first.records] == [1, 2, 3, 4, 5]
    first.ack(3)
    first.sock.close()
    second = e.client()
    second.watch()
    assert second.flush().lost == 0
    assert [r.host for r in second.records] == ["n3.test", "n4.test"]
    for nonsense in (0, 1, 77, 0xFFFFFFFF):
        second.ack(nonsense)
    third = e.client()
    third.watch()
    third.flush()
    assert [r.number for r in third.records] == [4, 5]
    second.sock.close()
    third.sock.close()


def test_records_nobody_takes_are_bounded_and_counted(proxied):
    e, _ = proxied(control="listening", watch=False)
    with e.dial() as c:
        c.close()
    for _ in range(1100):
        e.send(b"CONNECT no.test:443 HTTP/1.0\r\n\r\n")
    totals = e.flush()
    assert totals.denied == 1100 and totals.lost == 76
    late = e.client()
    late.watch()
    late.flush()
    assert len(late.records) == 1024 and late.records[-1].number == 1100
    late.sock.close()


def test_a_client_that_does_not_read_holds_up_nobody(proxied):
    e, _ = proxied(control="listening")
    deaf = e.client()
    deaf.watch()
    for _ in range(600):
        e.send(b"CONNECT no.test:443 HTTP/1.0\r\n\r\n")
    assert e.flush().denied == 600 and len(e.records) == 600
    deaf.flush()
    assert len(deaf.records) == 600
    deaf.sock.close()


@pytest.mark.parametrize("message", [b"x", b"x" * 100, struct.pack("<II", 77, 1), struct.pack("<II", 3, 1), b"\0" * 8])
def test_nonsense_on_the_control_socket(proxied, message):
    e, _ = proxied(control="listening")
    k = e.client()
    k.sock.send(message)
    if len(message) != 8:
        assert k.sock.recv(100) == b""
    k.sock.close()
    assert e.flush().denied == 0


def test_a_client_that_hangs_up_while_its_policy_cuts_a_tunnel(proxied):
    """It is told of what its own request refused: that fails, and the request is still being answered."""
    e, s = proxied(egress.echo, control="listening")
    for _ in range(5):
        e.policy(f"allow api.test:{s.port} {LOOPBACK}")
        tunnel, _ = e.connect("api.test", s.port)
        k = e.client()
        k.watch()
        fd = egress.memfd(json.dumps({"mode": "allow", "rules": ""}))
        k.flush()
        egress.send(k.sock, struct.pack("<II", egress.POLICY, 9), [fd])
        k.sock.close()
        os.close(fd)
        with tunnel:
            assert egress.is_reset(tunnel)
    assert e.process.poll() is None and e.flush().open == 0


def test_clients_of_the_control_socket_are_bounded(proxied):
    e, _ = proxied(control="listening")
    more = [e.client() for _ in range(12)]
    answered = 0
    for k in more:
        with contextlib.suppress(EOFError, OSError):
            answered += k.flush().denied == 0
    for k in more:
        k.sock.close()
    assert answered == 7 and e.flush().denied == 0


# ---------------------------------------------------------------------------------------------------- the policy changes


def test_PX_20_tunnels_that_the_new_policy_denies_are_cut(proxied, server):
    t = server(egress.echo)
    e, s = proxied(egress.echo, rules=f"allow api.test:{{port}} {LOOPBACK}\nallow other.test:{t.port} {LOOPBACK}")
    a, b = e.connect("api.test", s.port)[0], e.connect("other.test", t.port)[0]
    with a, b:
        for c in (a, b):
            c.sendall(b"x")
            assert egress.read_exactly(c, 1) == b"x"
        e.policy(f"allow other.test:{t.port} {LOOPBACK}")
        assert egress.is_reset(a)
        b.sendall(b"y")
        assert egress.read_exactly(b, 1) == b"y"
        assert e.denials() == [("api.test", s.port)] and e.records[0].sent == 1
        assert e.connect("api.test", s.port)[1].startswith("HTTP/1.1 403")
        e.policy("")
        assert egress.is_reset(b)
        e.policy(f"allow api.test:{s.port} {LOOPBACK}")
        c, head = e.connect("api.test", s.port)
        c.close()
        assert head.startswith("HTTP/1.1 200")


def test_PX_20_also_by_address_and_by_request(proxied):
    e, s = proxied(egress.echo)
    c, _ = e.connect("api.test", s.port)
    with c:
        e.policy(f"allow api.test:{s.port} within=10.0.0.0/8")  # the name still, its address no more
        assert egress.is_reset(c)

    def slow(peer, _):
        peer.head()
        time.sleep(1.5)
        peer.reply(b"late")
    e, s = proxied(slow)
    with e.dial() as c:
        c.sendall(get(f"api.test:{s.port}", "/a").encode())
        e.wait_for(lambda t: t.allowed == 1)
        e.policy(f"allow POST http://api.test:{s.port}/* {LOOPBACK}")
        assert egress.is_reset(c)
    with e.dial() as c:
        e.policy(f"allow GET http://api.test:{s.port}/* {LOOPBACK}")
        c.sendall(get(f"api.test:{s.port}", "/a").encode())
        e.wait_for(lambda t: t.allowed == 2)
        e.policy(f"allow GET http://api.test:{s.port}/a {LOOPBACK}")
        assert egress.drain(c).endswith(b"late")


@pytest.mark.parametrize("before", [False, True])
def test_PX_20_what_was_relayed_unseen_and_now_has_to_be_looked_into(proxied, before):
    e, s = proxied(rules=f"allow api.test:{{port}} {LOOPBACK}\nallow GET https://other.test/*")
    with e.dial() as c:
        if before:
            assert e.exchange(c, get(f"api.test:{s.port}").replace("Connection: close\r\n", ""))[0].startswith("HTTP/1.1 200")
        c.sendall(f"CONNECT api.test:{s.port} HTTP/1.1\r\nHost: api.test:{s.port}\r\n\r\n".encode())
        assert egress.read_head(c).startswith("HTTP/1.1 200 ")
        e.policy(f"allow GET https://api.test:{s.port}/* {LOOPBACK}")
        assert egress.is_reset(c)
        e.flush()
        assert e.records[-1].verdict == "denied" and "look into" in e.records[-1].why


def test_PX_20_connections_under_way_are_judged_anew(proxied):
    """Nobody answers at the address: the refusal comes from the new policy, at once."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    port = full.getsockname()[1]
    queue = []
    for _ in range(4):  # until the kernel drops what comes
        q = socket.socket()
        q.setblocking(False)
        q.connect_ex(("127.0.0.1", port))
        queue.append(q)
    e, _ = proxied(rules=f"allow api.test:{port} {LOOPBACK}")
    with e.dial() as c:
        c.sendall(f"CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode())
        e.wait_for(lambda t: t.open == 1)
        time.sleep(0.1)
        e.policy("")
        assert egress.drain(c).startswith(b"HTTP/1.1 403")
    for q in (*queue, full):
        q.close()


@pytest.mark.parametrize("raw", ["{", "[]", "{}", '{"mode":"allow"}', '{"mode":"open","rules":"allow *"}', '{"mode":"host","rules":""}',
                                 '{"mode":"open","rules":"","more":1}', '{"mode":"open","rules":null}', "", pytest.param("x" * 2000000, id="too large")])
def test_PX_20_a_broken_policy_changes_nothing(proxied, raw):
    e, s = proxied(egress.echo)
    c, _ = e.connect("api.test", s.port)
    fd = egress.memfd(raw)
    with c:
        kind, data = e.control.ask(egress.POLICY, [fd])
        os.close(fd)
        assert kind == egress.REFUSED and len(egress.text(data[8:])) > 8
        c.sendall(b"x")
        assert egress.read_exactly(c, 1) == b"x"
        assert e.connect("no.test", 443)[1].startswith("HTTP/1.1 403")


def test_PX_20_other_refusals_of_a_change(proxied):
    e, _ = proxied()
    kind, data = e.control.ask(egress.POLICY)
    assert kind == egress.REFUSED and "without its descriptor" in egress.text(data[8:])
    with pytest.raises(egress.Refused, match="without an authority"):
        e.policy("allow GET https://api.test/*")
    e, _ = proxied(rules="allow GET https://api.test/*")
    e.policy("allow GET,POST https://api.test/*")


def test_PX_20_only_its_starter_may_change_the_policy(proxied, root_only):
    e, _ = proxied(control="listening")
    os.chmod(e.folder, 0o755)
    os.chmod(f"{e.folder}/egress", 0o666)
    program = ("import sys; sys.path.insert(0, sys.argv[1]); import egress, socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
               "s.connect(sys.argv[2]); k = egress.Control(s); print(k.flush().denied)\n"
               "try: k.policy('', 'open')\nexcept egress.Refused as r: print(r)")
    done = subprocess.run([sys.executable, "-B", "-c", program, str(cloche.TOP / "tests/lib"), f"{e.folder}/egress"], user=61778, group=61778,
                          extra_groups=[], capture_output=True, text=True, timeout=20, env={"CLOCHE": cloche.binary()})
    assert done.stdout.split("\n")[0] == "0" and "Operation not permitted" in done.stdout, done
    e.policy("", "open")


# ---------------------------------------------------------------------------------------------------- what it has given up


def status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("uid", [egress.STAY, 61779])
def test_PX_23_it_has_no_privilege(proxied, root_only, uid):
    e, _ = proxied(uid=uid)
    e.flush()
    s = status(e.process.pid)
    assert {s[f"Cap{c}"] for c in ("Inh", "Prm", "Eff", "Amb")} == {"0" * 16} and s["CapBnd"] == "0" * 16, s
    assert (s["NoNewPrivs"], s["Seccomp"], s["Seccomp_filters"]) == ("1", "2", "1")
    if uid != egress.STAY:
        assert set(s["Uid"].split()) == set(s["Gid"].split()) == {"61779"} and s["Groups"] == ""
    limits = Path(f"/proc/{e.process.pid}/limits").read_text()
    assert re.search(r"Max core file size +1 +1 ", limits)
    held = {os.readlink(f"/proc/{e.process.pid}/fd/{f}") for f in os.listdir(f"/proc/{e.process.pid}/fd")}
    assert {h.split(":")[0] for h in held} <= {"socket", "anon_inode", "pipe", "/dev/null"}, held


def test_PX_23_it_leaves_no_core_and_no_secret_behind(proxied, root_only, tmp_path):
    """Killed by a signal that dumps: nothing is written; its memory cannot be read by its own user."""
    secret = "very-secret-value-" + "x" * 20
    e, _ = proxied(uid=61779, rules="credential k", credentials=[{**KEY, "value": secret}])
    e.flush()
    assert os.stat(f"/proc/{e.process.pid}/mem").st_uid == 0  # not dumpable
    assert secret not in Path(f"/proc/{e.process.pid}/cmdline").read_text() + Path(f"/proc/{e.process.pid}/environ").read_text()
    locked = int(status(e.process.pid)["VmLck"].split()[0])
    assert locked >= 4
    e.process.send_signal(signal.SIGQUIT)
    assert e.process.wait(10) == -signal.SIGQUIT
    assert not list(Path("/").glob("core*"))  # where it was
    e.process.returncode = 0


def test_PX_23_nothing_of_a_request_is_said_but_method_and_path(proxied):
    e, s = proxied(rules="allow GET http://api.test:{port}/ok within=127.0.0.0/8")
    e.send(f"POST http://api.test:{s.port}/p?query-secret HTTP/1.1\r\nHost: api.test:{s.port}\r\nX: field-secret\r\nContent-Length: 11\r\n\r\nbody-secret")
    e.flush()
    assert e.records[0].method == "POST" and e.records[0].path == "/p" and "secret" not in str(e.records)
    e.close()
    assert e.errors == ""


def dump(pid, arch="x86_64"):
    done = subprocess.run([arena.compiled("scdump", "-lseccomp"), "-v", "-a", arch, str(pid)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def calls():
    return re.findall(r"^(?:CALL|WHEN)\((\w+)(.*?)\)(?:\s*/\*.*)?$", LIST.read_text(), re.M)


@pytest.mark.needs("gcc")
def test_its_filter_is_the_golden_one(proxied, root_only):
    e, _ = proxied()
    e.flush()
    text = dump(e.process.pid)
    if os.environ.get("CLOCHE_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    for arch in ("i386", "x32"):
        assert "allow=0 args=0 errno=0" in dump(e.process.pid, arch).splitlines()[-1]
    reached = {line.split("\t")[2] for line in text.splitlines() if re.search(r"\t(allow|args\(allow.*)$", line)}
    assert reached == {name for name, *_ in calls()}
    assert not reached & {"execve", "execveat", "bind", "listen", "ptrace", "process_vm_readv", "kill", "unlink", "rename", "chmod", "prctl", "setuid", "mount"}


def test_the_list_of_calls_is_sorted_and_has_nothing_twice():
    lines = calls()
    assert len(lines) == len(re.findall(r"^(?:CALL|WHEN)", LIST.read_text(), re.M)) > 40
    assert lines == sorted(set(lines))


def test_names_are_resolved_under_its_own_filter(proxied):
    """getaddrinfo() on a thread, with the files that Landlock leaves it: no call is refused that it needs."""
    e, s = proxied(rules="allow localhost:{port} within=127.0.0.0/8", wrap=("strace", "-f", "-qq", "-Z", "-o", "/dev/stderr"))
    answer = e.send(get(f"localhost:{s.port}"))
    assert answer.startswith(b"HTTP/1.1 200"), answer
    e.close()
    after = e.errors.partition("landlock_restrict_self")[2] or e.errors
    refused = [line for line in after.splitlines() if " EPERM" in line]
    assert not [line for line in refused if "AF_UNIX" not in line and "AF_NETLINK" not in line], refused
