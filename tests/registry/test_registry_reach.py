# SPDX-License-Identifier: Apache-2.0
"""Who may lead us where (AP-11, PX-05 to PX-07): a machine of its own, made of namespaces, whose loopback interface has
public, private and link-local addresses. On each address that must not be reached a canary counts connections; the
controls show that each can be reached by somebody who may."""
import contextlib
import ctypes
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import cloche
import pytest
import registry as registries
from registry import Image, Script, check_blobs, pull, serve_image, write

PUBLIC, PUBLIC_2, PRIVATE, PRIVATE_2, METADATA = "93.184.216.34", "8.8.4.4", "10.1.2.3", "192.168.7.7", "169.254.169.254"
CGNAT, SIX, ULA = "100.64.1.1", "2606:4700:4700::1111", "fd00::7"
IMAGE = Image(layers=1, size=10_000)
NAMES = {"public.test": [PUBLIC], "private.test": [PRIVATE], "local.test": ["127.0.0.1"], "six.test": ["::1"],
         "metadata.test": [METADATA], "both.test": [PUBLIC, "127.0.0.1"], "other.test": [PUBLIC_2], "cgnat.test": [CGNAT],
         "turns.test": [PUBLIC, PRIVATE]}
LIBC = ctypes.CDLL(None, use_errno=True)


class Machine:
    def __init__(self, folder, authority):
        hosts = folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n::1 localhost\n" +
                         "".join(f"{a} {n}\n" for n, all_of_it in NAMES.items() for a in all_of_it))
        script = f"mount --make-rprivate / && mount --bind {hosts} /etc/hosts && ip link set lo up"
        resolv = folder / "resolv.conf"
        resolv.write_text("nameserver 127.0.0.1\n")
        script += f" && mount --bind {resolv} /etc/resolv.conf"
        script += f" && mount --bind {authority.file} /etc/ssl/certs/ca-certificates.crt"
        for a in (PUBLIC, PUBLIC_2, PRIVATE, PRIVATE_2, METADATA, CGNAT):
            script += f" && ip address add {a}/32 dev lo"
        for a in (SIX, ULA):
            script += f" && ip -6 address add {a}/128 dev lo nodad"
        self.process = subprocess.Popen(["unshare", "-m", "-n", "sh", "-c", script + " && echo up && exec sleep 1000"],
                                        stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"up\n"
        self.prefix = ["nsenter", "-m", "-n", "-t", str(self.process.pid)]

    def listen(self, address, port=0, make=None):
        """A listening socket of that machine (or what make() makes there), in this process."""
        made = []
        make = make or (lambda: socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET))

        def enter():
            fd = os.open(f"/proc/{self.process.pid}/ns/net", os.O_RDONLY)
            if LIBC.setns(fd, 0x40000000) == 0:
                with contextlib.suppress(OSError):
                    made.append(make())
            os.close(fd)
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert made, f"cannot listen on {address}"
        return made[0]

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def machine(tmp_path_factory, authority):
    cloche.need("root")
    registries.need("unshare", "nsenter", "ip")
    one = Machine(tmp_path_factory.mktemp("machine"), authority)
    yield one
    one.close()


@pytest.fixture
def canary(machine):
    """One server on one port of every address that nobody outside may lead to; it serves the image, if asked."""
    servers = [Script(serve_image(IMAGE), sock=machine.listen("127.0.0.1"))]
    port = servers[0].port
    for a in (PRIVATE, PRIVATE_2, METADATA, CGNAT, "::1", ULA):
        servers.append(Script(serve_image(IMAGE), sock=machine.listen(a, port)))
    yield Canary(servers, port)
    for s in servers:
        s.close()


class Canary:
    def __init__(self, servers, port):
        self.servers, self.port = servers, port

    def connections(self):
        """Requests, and connections without one."""
        time.sleep(0.05)
        return sum(s.connections for s in self.servers)


def at(machine, address, routes):
    return Script(routes, sock=machine.listen(address))


def host(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def insecure(*hosts):
    return {h: {"insecure": "true"} for h in hosts}


def to(url):
    return lambda c, r: write(c, "307 Temporary Redirect", Location=url + r.path)


@pytest.mark.parametrize("place", ["127.0.0.1", "[::1]", PRIVATE, PRIVATE_2, CGNAT, METADATA, f"[{ULA}]", "localhost", "local.test",
                                   "six.test", "private.test", "metadata.test", "cgnat.test", "2130706433", "0x7f000001",
                                   "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "[::ffff:10.1.2.3]", "[::127.0.0.1]", "0.0.0.0",
                                   "[::]", "LOCALHOST.", "a.localhost"])
def test_AP_11_public_registry_leads_inside(machine, canary, out, place):
    """By the redirect of a manifest, of a blob, and by its token server: nobody is connected to."""
    inside = f"http://{place}:{canary.port}"
    realm = f'Bearer realm="https://{place}:{canary.port}/token"'
    for routes in (serve_image(IMAGE, manifest=to(inside)), serve_image(IMAGE, blob=to(inside)),
                   [("/", lambda c, r: write(c, "401 X", WWW_Authenticate=realm))]):
        with at(machine, PUBLIC, routes) as s:
            name = host(PUBLIC, s.port)
            a = pull(f"{name}/x", out, registries=insecure(name), prefix=machine.prefix, attempts=1)
            assert a.cause == "FORBIDDEN" and a.seconds < 10, a.error
            assert s.requests
    assert canary.connections() == 0


def test_AP_11_control(machine, canary, out):
    """The canary answers those who may: this machine to itself, private to private, and whoever is configured; a public
    registry may lead to another public address."""
    for n, (front, inside) in enumerate([("127.0.0.1", "127.0.0.1"), ("127.0.0.1", PRIVATE), (PRIVATE, PRIVATE_2),
                                         (PRIVATE_2, CGNAT), ("::1", "::1"), (ULA, PRIVATE)]):
        with at(machine, front, serve_image(IMAGE, blob=to(f"http://{host(inside, canary.port)}"))) as s:
            name = host(front, s.port)
            where = out.with_name(f"out{n}")
            a = pull(f"{name}/x", where, registries=insecure(name), prefix=machine.prefix)
            assert a.cause == "NONE", (front, inside, a.error)
            check_blobs(where, a)
    assert canary.connections() > 5
    for n, (front, cdn) in enumerate([(PUBLIC, PUBLIC_2), (PUBLIC, SIX), (PRIVATE, PUBLIC)]):
        with at(machine, cdn, serve_image(IMAGE)) as c, \
                at(machine, front, serve_image(IMAGE, blob=to(f"http://{host(cdn, c.port)}"))) as s:
            name = host(front, s.port)
            a = pull(f"{name}/x", out.with_name(f"cdn{n}"), registries=insecure(name), prefix=machine.prefix)
            assert a.cause == "NONE", a.error
    name = f"{METADATA}:{canary.port}"
    assert pull(f"{name}/x", out, registries=insecure(name), prefix=machine.prefix).cause == "NONE"


@pytest.mark.parametrize("place", ["127.0.0.1", "[::1]", "local.test", METADATA, "metadata.test"])
def test_AP_11_private_registry_leads_to_this_machine(machine, canary, out, place):
    with at(machine, PRIVATE, serve_image(IMAGE, blob=to(f"http://{place}:{canary.port}"))) as s:
        name = host(PRIVATE, s.port)
        a = pull(f"{name}/x", out, registries=insecure(name), prefix=machine.prefix, attempts=1)
        assert a.cause == "FORBIDDEN", a.error
    assert canary.connections() == 0


def test_AP_11_a_name_with_two_addresses(machine, canary, out):
    """Every address is checked at the socket: the public one is used, the other is not even tried when that one fails."""
    front = [("/manifests/", lambda c, r: serve_image(IMAGE)[0][1](c, r)), ("/blobs/", to(f"http://both.test:{canary.port}"))]
    with at(machine, PUBLIC_2, front) as s:
        name = host(PUBLIC_2, s.port)
        a = pull(f"{name}/x", out, registries=insecure(name), prefix=machine.prefix, attempts=1)
        assert a.cause == "FORBIDDEN", a.error
        assert canary.connections() == 0
        with Script(serve_image(IMAGE), sock=machine.listen(PUBLIC, canary.port)):
            a = pull(f"{name}/x", out, registries=insecure(name), prefix=machine.prefix)
            assert a.cause == "NONE", a.error
        assert canary.connections() == 0


@pytest.mark.parametrize("turn", [True, False])
def test_AP_11_a_registry_moves_inside(machine, authority, out, turn):
    """A person may name a private registry. One that has answered from a public address is public from then on, also when its
    name has another address by the time of the blobs. (Control: from the private address alone it is pulled.)"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(f"turns{turn}", "DNS:turns.test"))
    inside = []

    def manifest(c, request):
        if turn:
            public.close()
            inside.append(Script(serve_image(IMAGE), sock=machine.listen(PRIVATE, public.port), tls=context))
        serve_image(IMAGE)[0][1](c, request)
        return False

    first = PUBLIC if turn else PRIVATE
    with Script(serve_image(IMAGE, manifest=manifest), sock=machine.listen(first), tls=context) as public:
        a = pull(f"turns.test:{public.port}/x", out, prefix=machine.prefix, attempts=1)
    if turn:
        assert a.cause in ("FORBIDDEN", "UNREACHABLE") and inside[0].connections == 0, a.error
        inside[0].close()
    else:
        assert a.cause == "NONE", a.error


def test_AP_11_names_of_images(machine, canary, out):
    """The name itself: a private registry is a person's business, this machine must be called by its name, link-local
    addresses are nobody's; for a name that a client of the service chose, only what the operator configured."""
    rows = [("127.0.0.1", 0, True), ("localhost", 0, True), ("[::1]", 0, True), ("local.test", 0, False), ("six.test", 0, False),
            (METADATA, 0, False), ("metadata.test", 0, False), ("0.0.0.0", 0, False), ("127.0.0.1", 1, False),
            ("localhost", 1, False), ("[::1]", 1, False), ("local.test", 1, False), (PRIVATE, 1, False), ("private.test", 1, False),
            (CGNAT, 1, False), (f"[{ULA}]", 1, False), (METADATA, 1, False)]
    for n, (place, untrusted, allowed) in enumerate(rows):
        before = canary.connections()
        a = pull(f"{place}:{canary.port}/x", out.with_name(f"out{n}"), untrusted=untrusted, prefix=machine.prefix)
        assert a.cause == ("NONE" if allowed else "FORBIDDEN"), (place, untrusted, a.error)
        assert (canary.connections() > before) == allowed
    # a person's private registry without TLS is found, and told how to go on
    a = pull(f"{PRIVATE}:{canary.port}/x", out, prefix=machine.prefix)
    assert a.cause == "TLS" and "insecure: true" in a.error
    for place in ("127.0.0.1", PRIVATE):
        name = f"{place}:{canary.port}"
        a = pull(f"{name}/x", out.with_name(f"configured-{place}"), untrusted=1, registries=insecure(name), prefix=machine.prefix)
        assert a.cause == "NONE"


def test_a_connection_that_is_open_already(machine, canary, out):
    """A mirror on this machine is configured; the public registry behind it may not lead to it, although libcurl has a
    connection there that could be used again."""
    local = f"127.0.0.1:{canary.port}"
    canary.servers[0].routes = [("/manifests/", registries.missing), *serve_image(IMAGE)]
    with at(machine, PUBLIC, serve_image(IMAGE, blob=to(f"http://{local}/stolen"))) as s:
        name = host(PUBLIC, s.port)
        a = pull(f"{name}/x", out, prefix=machine.prefix, attempts=1,
                 registries={name: {"insecure": "true", "mirrors": [f"http://{local}"]}})
    paths = [r.path for r in canary.servers[0].requests]
    # the mirror was asked as a mirror, before and after, and never through the registry
    assert a.cause == "NONE" and len(paths) >= 2 and s.requests
    assert not any("stolen" in p for p in paths)


def test_dns_that_is_silent(machine, out):
    """A name server that says nothing: an error in time, and Ctrl-C ends the wait at once."""
    def silent():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("127.0.0.1", 53))
        return s

    with machine.listen("127.0.0.1", make=silent) as s:
        a = pull("unknown.test/x", out, prefix=machine.prefix, connect_ms=500)
        assert a.cause == "UNREACHABLE" and a.seconds < 5, a.seconds
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while s.recv(512):  # the first pull's questions
                pass
        s.settimeout(10)
        process = registries.start("unknown.test/x", out, prefix=machine.prefix)
        s.recv(512)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        a = registries.finish(process, began)
        assert a.cause == "CANCELLED" and a.seconds < 5
