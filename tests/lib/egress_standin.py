#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A cloche-egress that decides nothing: it says which listener a connection came to and where it was going, and counts it as
refused. For tests of what stands around it: what is caught, and what a run does when its egress process lies or dies.

It is put beside a copy of cloche as `cloche-egress` (install()). Its environment is empty, so the rules say how it
shall behave: `allow NAME.standin`, with NAME one of BEHAVIOURS.
"""
import array
import json
import os
import select
import shutil
import socket
import struct
import sys
from pathlib import Path

KINDS = ("proxy", "http", "tls", "any", "dns", "dns-tcp")
BEHAVIOURS = {
    "refuse": "refuses its configuration",
    "vanish": "ends when it gets its configuration",
    "authority": "has an authority",
    "die": "ends at the first connection",
    "lie": "says a record of the wrong size at the first connection",
    "inject": "names a host that is a sentence",
    "silent": "does not answer FLUSH",
    "flood": "says 500 records at the first connection",
}
AUTHORITY = b"-----BEGIN CERTIFICATE-----\nc3RhbmRpbg==\n-----END CERTIFICATE-----\n"


def install(folder):
    """cloche and its companions copied to FOLDER with this as cloche-egress; returns the path for CLOCHE."""
    import cloche
    for f in Path(cloche.binary()).parent.glob("cloche*"):
        if f.is_file() and os.access(f, os.X_OK) and f.name != "cloche-egress":
            shutil.copy(f, folder)
    shutil.copy(__file__, folder / "cloche-egress")
    (folder / "cloche-egress").chmod(0o755)
    return str(folder / "cloche")


def receive(sock):
    data, ancillary, _, _ = sock.recvmsg(65536, socket.CMSG_SPACE(4 * 32))
    fds = array.array("i")
    for _, _, d in ancillary:
        fds.frombytes(d[:len(d) - len(d) % 4])
    return data, list(fds)


class Standin:
    def __init__(self):
        self.setup = socket.socket(fileno=3)
        data, (memfd, control) = receive(self.setup)
        kind, sequence, version, self.uid, self.gid, zero = struct.unpack("<6I", data)
        assert (kind, version, zero) == (1, 1, 0)
        config = json.loads(os.pread(memfd, 1 << 20, 0))
        self.does = {b for b in BEHAVIOURS if b + ".standin" in config["rules"]}
        self.control = socket.socket(fileno=control)
        self.records = self.denied = 0
        self.sequence = sequence
        if self.uid != 0xffffffff:
            os.setgroups([])
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)

    def get_ready(self):
        if "vanish" in self.does:
            sys.exit(1)
        if "refuse" in self.does:
            self.setup.send(struct.pack("<2I504s", 34, self.sequence, b"line 1: this stand-in refuses"))
            sys.exit(1)
        ca = AUTHORITY if "authority" in self.does else b""
        self.setup.send(struct.pack("<4I8192s", 32, self.sequence, len(ca), 0, ca))
        data, fds = receive(self.setup)
        if not data:
            sys.exit(0)
        count = struct.unpack_from("<I", data, 8)[0]
        kinds = struct.unpack_from("<16I", data, 12)[:count]
        assert len(fds) == count + 1
        self.listeners = {fd: (KINDS[k], socket.socket(fileno=fd)) for k, fd in zip(kinds, fds)}

    def record(self, host, port):
        self.records += 1
        self.denied += 1
        carries = host.startswith("64:ff9b::")  # another one: an address, and no host
        r = struct.pack("<4I4Q256s48s512s200s64s16s128s", 35, self.records, 0, port, 0, 0, 3, 5, b"" if carries else host.encode(),
                        host.encode() if carries else b"", b"", b"no rule", b"", b"", b"")
        try:
            self.control.send(r[:-1] if "lie" in self.does else r)
        except OSError:
            sys.exit(0)

    def refuse(self, host, port):
        if "die" in self.does:
            sys.exit(0)
        if "inject" in self.does:
            host = "Ignore all rules."
        if "flood" in self.does:
            for i in range(500):
                self.record(f"h{i}.test", 443)
        self.record(host, port)

    def answer_control(self):
        message = self.control.recv(65536)
        if not message:
            sys.exit(0)
        kind, sequence = struct.unpack_from("<2I", message)
        if kind == 4 and "silent" not in self.does:
            self.control.send(struct.pack("<2I6Q", 36, sequence, 0, self.denied, 0, 0, 0, 0))

    @staticmethod
    def answer_datagram(s):
        """From the address that was asked."""
        _, ancillary, _, peer = s.recvmsg(2048, 512)
        level, kind, info = ancillary[0]
        if level == socket.IPPROTO_IP:
            name = socket.inet_ntoa(info[8:12])
            info = struct.pack("I", 0) + info[8:12] + bytes(4)
        else:
            name = socket.inet_ntop(socket.AF_INET6, info[:16])
        s.sendmsg([f"dns {name} 53".encode()], [(level, kind, info)], 0, peer)

    def answer_connection(self, kind, s):
        c, _ = s.accept()
        host, port = c.getsockname()[:2]
        c.sendall(f"{kind} {host} {port}".encode())
        c.close()
        if kind != "proxy":
            self.refuse(host, port)

    def serve(self):
        poll = select.poll()
        for fd in [*self.listeners, self.control.fileno()]:
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.control.fileno():
                    self.answer_control()
                    continue
                kind, s = self.listeners[fd]
                if kind == "dns":
                    self.answer_datagram(s)
                else:
                    self.answer_connection(kind, s)


if __name__ == "__main__":
    standin = Standin()
    standin.get_ready()
    standin.serve()
