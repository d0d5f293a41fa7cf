# SPDX-License-Identifier: Apache-2.0
"""The bodies of one caller are bounded over all its connections; another one's are its own."""
import fcntl
import json
import struct
import termios

import contract
import pytest
import service as services

SIZE = 1_000_000


@pytest.fixture(scope="module")
def mine():
    with services.Service({"body_limit": "1m"}) as one:
        yield one


def begin(client, path="/v1/runs", body=None):
    """A request whose last byte does not come: (socket, that byte)."""
    text = json.dumps(body or {"command": ["wc", "-c"], "memory": "64m", "stdin": "x" * SIZE}).encode()
    s = client.socket()
    s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.secret}\r\nConnection: close\r\n"
              f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text[:-1])
    return s, text[-1:]


def answer(s):
    raw = b"".join(iter(lambda: s.recv(65536), b""))
    s.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), json.loads(body)


def received(sockets):
    """Until the service has read, and so counted, all that was sent."""
    contract.until(lambda: not any(unread(s) for s in sockets), 10, "the bodies")


def unread(s):
    """Bytes that wait for the other side."""
    return struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, b"1234"))[0]


def test_large_bodies_of_one_caller(mine):
    greedy, other = mine.key("greedy"), mine.key("other")
    held = [begin(greedy) for _ in range(8)]
    received([s for s, _ in held])
    for _ in range(2):
        s, _ = begin(greedy)
        status, head, problem = answer(s)
        assert (status, problem["code"], problem["retryable"]) == (429, "TOO_MANY_REQUESTS", True) and "\r\nretry-after: " in head
    assert greedy.run(["echo", "small"]).out == b"small\n"
    assert other.run(["wc", "-c"], memory="64m", stdin="x" * SIZE).out == b"%d\n" % SIZE
    for s, last in held[:4]:
        s.sendall(last)
        assert answer(s)[2]["stdout"] == f"{SIZE}\n"
    for s, _ in held[4:]:  # who goes away gives it back, too
        s.close()
    contract.until(lambda: greedy.request("POST", "/v1/runs", json={"command": ["wc", "-c"], "memory": "64m", "stdin": "x" * SIZE},
                                          check=False).status == 200, 10)
    again = [begin(greedy) for _ in range(8)]
    for s, last in again:
        s.sendall(last)
    assert {answer(s)[0] for s, _ in again} == {200}


def test_bodies_that_are_refused_are_given_back(mine):
    client = mine.key("wrong")
    for _ in range(20):
        s, last = begin(client, body={"command": ["true"], "nonsense": "x" * SIZE})
        s.sendall(last)
        assert answer(s)[0] == 400
    s, last = begin(client)
    s.sendall(last)
    assert answer(s)[0] == 200


def test_a_run_that_lasts_holds_no_body(mine):
    client = mine.key("lasting")
    lasting = []
    for _ in range(10):
        s, last = begin(client, body={"command": ["sleep", "5"], "memory": "64m", "timeout": "20s", "stdin": "x" * SIZE})
        s.sendall(last)
        contract.until(lambda: len([r for r in client.get("/v1/runs")["runs"] if r["state"] == "running"]) > len(lasting), 10)
        lasting.append(s)
    assert {answer(s)[0] for s in lasting} == {200}
