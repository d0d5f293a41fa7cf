# SPDX-License-Identifier: Apache-2.0
"""An init that somebody has taken over: it says to cloched whatever it likes, or nothing. A run of it ends all the same, in
time and with a true reason."""
import contextlib
import os
import queue
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import contract
import proc
import pytest
import service as services
from test_pool import metric, prepared, settled

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
BEGUN = struct.pack("<IBBxxII", 8, 96, 0, 1, 2)


@pytest.fixture(scope="module")
def mine():
    with services.Service() as one:
        yield one


class TakenOver:
    """In the place of a sandbox's init, from now on: whoever connects is given to answer(connection, its real init)."""

    def __init__(self, one, box, answer):
        self.path, self.answer, self.open = one.folder / "run" / "sandboxes" / box.id / "ctl", answer, []
        self.real = self.path.with_name("ctl.real")
        was = self.path.stat()
        self.path.rename(self.real)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        os.chown(self.path, was.st_uid, was.st_gid)
        os.chmod(self.path, was.st_mode & 0o777)
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        for s in (self.listener, *self.open):
            s.close()
        if self.real.exists():
            self.real.rename(self.path)

    def accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            real = socket.socket(socket.AF_UNIX)
            self.open += [peer, real]
            threading.Thread(target=self.serve, args=(peer, real), daemon=True).start()

    def serve(self, peer, real):
        try:
            self.answer(peer, real, self.real)
        except OSError:
            pass


def silent(peer, real, path):
    while peer.recv(65536):
        pass


def begins_again_and_again(peer, real, path):
    real.connect(str(path))
    threading.Thread(target=pump, args=(peer, real), daemon=True).start()
    peer.sendall(real.recv(65536))
    while True:
        time.sleep(0.2)
        peer.sendall(BEGUN)


def pump(source, to):
    try:
        while data := source.recv(65536):
            to.sendall(data)
    except OSError:
        pass


def test_a_command_that_begins_again_and_again(mine):
    """Its clocks run from the first time on."""
    box = mine.root.box(memory="64m")
    with TakenOver(mine, box, begins_again_and_again):
        began = time.monotonic()
        answer = mine.root.request("POST", box.path + "/exec", json={"command": ["sleep", "100"], "timeout": "1s"}, timeout=20)
        assert answer.status == 200 and answer.json["reason"] in ("timeout", "runtime_crash"), answer
        assert time.monotonic() - began < 8
    assert box.object()["state"] == "ended", "what breaks its rules is ended"


def test_the_next_command_goes_on_on_the_conversation_of_the_one_before(mine):
    """Unless init has not said yet that it takes another one, as it does behind the answer."""
    box, connected = mine.root.box(memory="64m"), []

    def answer(peer, real, path):
        connected.append(1)
        real.connect(str(path))
        threading.Thread(target=pump, args=(peer, real), daemon=True).start()
        pump(real, peer)
    reused = 0
    with TakenOver(mine, box, answer):
        for i in range(200):
            before = len(connected)
            assert box.exec(["echo", str(i)]).out == b"%d\n" % i
            reused += len(connected) == before
            if reused == 3:
                break
    assert reused == 3, "each had a conversation of its own"
    box.kill()


def test_one_that_says_nothing_after_a_restart(mine):
    box = mine.root.box(memory="64m")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: mine.root.request("POST", box.path + "/exec", json={"command": ["sleep", "100"], "timeout": "60s"}))
        run = contract.until(lambda: [r for r in mine.root.get("/v1/runs", limit=1)["runs"]
                                      if r["state"] == "running" and r["sandbox"] == box.id], 10)[0]
        contract.until(lambda: any(p["command"][:1] == ["sleep"] for p in box.everything() if isinstance(p["command"], list)) or
                       "sleep" in str(box.everything()), 10)
        with TakenOver(mine, box, silent):
            before = mine.child("cloched")
            os.kill(before, signal.SIGKILL)
            assert asked.exception(20), "its connection was cut"
            contract.until(lambda: mine.child("cloched") not in (None, before), 10)
            mine.wait_ready()
            end = contract.until(lambda: (lambda r: r["state"] == "ended" and r)(mine.root.get(f"/v1/runs/{run['id']}")), 15)
    assert end["result"]["reason"] == "lost" and end["result"]["retryable"], end
    box.kill()


# ------------------------------------------------------------------------------------- one that is being prepared


@pytest.fixture
def preparing():
    """A service, and the folder of a sandbox that it is about to begin to talk to, standing still until go()."""
    with services.Service({"pool": 1, "pool_floor": 1}) as one:
        assert one.root.run(language="bash", code="echo 1").out == b"1\n"
        prepared(one.root)
        settled(one)
        spawner = one.child("cloche-spawner")
        one.spawner, mine = spawner, one.child("cloched")
        folders = one.folder / "run" / "sandboxes"
        was = set(os.listdir(folders))
        try:
            os.kill(spawner, signal.SIGSTOP)
            os.utime(one.config)  # so what is prepared goes, and another one is asked for
            contract.until(lambda: metric(one.root, "cloche_pool_making") == 1, 10)
            os.kill(mine, signal.SIGSTOP)
            os.kill(spawner, signal.SIGCONT)
            new = contract.until(lambda: [f for f in os.listdir(folders) if f not in was and (folders / f / "ctl").exists()], 10)
            contract.until(lambda: not was & set(os.listdir(folders)), 10)
            time.sleep(0.3)  # nothing tells that the answer is in the socket
            yield one, folders / new[0], lambda: os.kill(mine, signal.SIGCONT)
        finally:
            for pid in (spawner, mine):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)


class Prepared:
    """What answers in the place of the init of one that is being prepared, and knows when it is told to start something."""

    def __init__(self, one, folder):
        self.told, self.hung_up, self.say = threading.Event(), threading.Event(), queue.Queue()
        self.init = TakenOver(one, SimpleNamespace(id=folder.name), self.answer)
        self.init.real.unlink()

    def answer(self, peer, real, path):
        assert peer.recv(65536)
        self.told.set()
        threading.Thread(target=self.listen, args=(peer, ), daemon=True).start()
        data = self.say.get(timeout=30)
        peer.sendall(data) if data else peer.shutdown(socket.SHUT_RDWR)

    def listen(self, peer):
        with contextlib.suppress(OSError):
            while peer.recv(65536):
                pass
        self.hung_up.set()


@pytest.mark.parametrize("says", [b"", BEGUN], ids=["hangs up", "has begun"])
def test_one_that_speaks_after_its_end(preparing, says):
    """The spawner's word comes first: it is not handed over, and nobody waits for its end for ever."""
    one, folder, go = preparing
    fake = Prepared(one, folder)
    with fake.init:
        go()
        assert fake.told.wait(10)
        inits = [p for p in one.processes() if "memfd:cloche-in" in proc.name(p)]
        assert len(inits) == 1
        os.kill(inits[0], signal.SIGKILL)
        contract.until(lambda: not (folder / "meta").exists(), 10)
        assert metric(one.root, "cloche_pool_making") == 1
        fake.say.put(says)
        contract.until(lambda: metric(one.root, "cloche_pool_making") == 0, 10)
        time.sleep(0.5)  # an end that does not come has no event
        assert metric(one.root, "cloche_pool_ready") == 0
        assert metric(one.root, "cloche_sandboxes_dying") == 0


def test_one_whose_spawner_went_away_is_not_talked_to(preparing):
    """The next one is told to kill it: it is nobody's, whatever it says then."""
    one, folder, go = preparing
    fake = Prepared(one, folder)
    with fake.init:
        go()
        assert fake.told.wait(10)
        os.kill(one.spawner, signal.SIGKILL)
        assert fake.hung_up.wait(5)
        contract.until(lambda: not folder.exists(), 10)
