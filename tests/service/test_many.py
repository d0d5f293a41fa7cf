# SPDX-License-Identifier: Apache-2.0
"""In the numbers of the basis: 5,000 idle connections (AP-04), 10,000 creates of one tenant (AP-15). Others notice nothing."""
import http.client
import json
import resource
import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloche
import contract
import pytest
import service as services

IDLE, PER_PEER, CREATES, WORKERS = 5000, 1024, 10_000, 16


def rss_mb(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.fixture
def descriptors():
    """As many as both sides need; the service inherits them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * IDLE
    if hard < wanted:
        pytest.skip(f"RLIMIT_NOFILE is {hard}: {wanted} are needed for {IDLE} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def hung_up(s):
    """Whether the other side has closed it, or said so and closed it."""
    s.settimeout(5)
    try:
        return s.recv(4096)[:1] in (b"", b"H")
    except ConnectionResetError:
        return True


def test_AP_04_5000_idle_connections(descriptors):
    with services.Service({"connections": IDLE + 500}) as one:
        pid, tenant = one.child("cloched"), one.key("other")
        box = tenant.box(memory="64m")
        held = []
        try:
            for i in range(IDLE):  # no address may have more than its part
                s = socket.socket()
                s.bind((f"127.0.0.{2 + i // PER_PEER}", 0))
                s.connect(("127.0.0.1", one.port))
                if i % 3 == 0:
                    s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")  # answered, and kept
                held.append(s)
            contract.until(lambda: len(cloche.fds(pid)) > IDLE, 10, "all connections")
            one_more = socket.socket()
            one_more.bind(("127.0.0.2", 0))
            one_more.connect(("127.0.0.1", one.port))
            assert hung_up(one_more), "one address has more than its part"
            one_more.close()
            took = []
            for _ in range(50):
                began = time.monotonic()
                tenant.get("/v1/sandboxes")
                assert box.exec(["true"]).exit_code == 0
                took.append(time.monotonic() - began)
            assert statistics.median(took) < 0.1 * contract.SLOWER, sorted(took)
            assert rss_mb(pid) < 150 * contract.SLOWER
        finally:
            for s in held:
                s.close()
        contract.until(lambda: len(cloche.fds(pid)) < 100, 20, "the end of the connections")
        box.kill()


def test_AP_15_10000_creates_of_one_tenant():
    """The queue and the quota bound them: each is answered, 201 or 429, nothing grows, and another tenant is served meanwhile."""
    with services.Service() as one:
        greedy, other = one.key("greedy", {"sandboxes": 20}), one.key("other")
        pids = [one.child(name) for name in ("cloched", "cloche-spawner")]
        before = [len(cloche.fds(p)) for p in pids]
        statuses, over, left = [], threading.Event(), iter(range(CREATES))
        lock = threading.Lock()

        def create():
            connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
            mine = []
            while True:
                with lock:
                    if next(left, None) is None:
                        break
                connection.request("POST", "/v1/sandboxes", json.dumps({"memory": "32m"}),
                                   {"Content-Type": "application/json", "Authorization": f"Bearer {greedy.secret}"})
                answer = connection.getresponse()
                answer.read()
                mine.append((answer.status, answer.headers.get("Retry-After")))
            connection.close()
            return mine

        def peer():
            took = []
            while not over.is_set():
                began = time.monotonic()
                box = other.box(memory="32m")
                assert box.exec(["true"]).exit_code == 0
                took.append(time.monotonic() - began)
                box.kill()
            return took

        began = time.monotonic()
        with ThreadPoolExecutor(WORKERS + 1) as pool:
            watching = pool.submit(peer)
            for mine in [pool.submit(create) for _ in range(WORKERS)]:
                statuses += mine.result(120)
            seconds = time.monotonic() - began
            over.set()
            took = watching.result(60)
        assert len(statuses) == CREATES and {s for s, _ in statuses} == {201, 429}
        assert sum(s == 201 for s, _ in statuses) == 20 and all(int(after) >= 1 for s, after in statuses if s == 429)
        assert len(took) > 3 and statistics.median(took) < 1 * contract.SLOWER, (len(took), sorted(took)[-5:], seconds)
        for row in greedy.get("/v1/sandboxes", limit=1000)["sandboxes"]:
            greedy.expect(200, "DELETE", f"/v1/sandboxes/{row['id']}")
        contract.until(lambda: all(len(cloche.fds(p)) <= n + 20 for p, n in zip(pids, before)), 20, "descriptors as before")
        print(f"{CREATES} creates in {seconds:.1f} s; the peer's median {statistics.median(took) * 1000:.0f} ms")
