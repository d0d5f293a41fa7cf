# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the proxy's tests: the driver is tests/lib/egress.py, which sees to it that each process has ended by itself."""
import cloche
import egress
import pytest

LOOPBACK = "within=127.0.0.0/8"


@pytest.fixture
def server():
    """Start a server on loopback: server(handle) → egress.Server."""
    made = []

    def start(handle=egress.http_echo, **options):
        made.append(egress.Server(handle, **options))
        return made[-1]
    yield start
    for s in made:
        s.__exit__()


@pytest.fixture
def proxied(server):
    """proxied(handle): a server called api.test, and a proxy that allows it: (proxy, server)."""
    running = []

    def start(handle=egress.http_echo, rules="allow api.test:{port} " + LOOPBACK, tls=None, **options):
        s = server(handle, tls=tls)
        names = {"api.test": ["127.0.0.1"], "other.test": ["127.0.0.1"], **options.pop("resolve", {})}
        e = egress.Egress(rules=rules.format(port=s.port), resolve=names, **options)
        e.__enter__()
        running.append(e)
        return e, s
    yield start
    for e in running:
        e.close()


@pytest.fixture
def netns():
    cloche.need("root")
    n = egress.Netns()
    yield n
    n.close()
