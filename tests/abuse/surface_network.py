# SPDX-License-Identifier: Apache-2.0
"""What code can see of the network, one line per thing as surface.c prints them: SECTION <tab> NAME <tab> DETAIL. It runs inside.

Numbers that differ from run to run (counters, inodes, pointers, ids) are left out. A file of /proc/net that is not known here is
named with its number of lines, so one that is new, or gets longer, is a line that is new.
"""
import fcntl
import os
import socket
import struct

NET = "/proc/self/net"
SIOCGIFFLAGS = 0x8913
# Counters, or the whole machine's.
NAME_ONLY = {"netstat", "packet", "protocols", "ptype", "rt6_stats", "snmp", "snmp6", "sockstat", "sockstat6", "softnet_stat", "fib_triestat",
             "xfrm_stat", "rt_acct"}


def line(*words):
    print("\t".join(words))


def lines(path):
    try:
        with open(path, errors="backslashreplace") as f:
            return f.read().splitlines()
    except OSError as e:
        return [f"({os.strerror(e.errno)})"]


def address(text):
    """The kernel's spelling of ADDRESS:PORT, four bytes at a time in the machine's order."""
    raw, port = text.split(":")
    words = [struct.pack("=I", int(raw[i:i + 8], 16)) for i in range(0, len(raw), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return f"{socket.inet_ntop(family, b''.join(words))} {int(port, 16)}"


def sockets(rows):
    for row in rows[1:]:
        f = row.split()
        yield f"{address(f[1])} to {address(f[2])} state {f[3]} uid {f[7]}"


def fib_trie(rows):
    leaf = ""
    for row in rows:
        f = row.split()
        leaf = f[1] if f[0] == "|--" else leaf
        if f[0].startswith("/"):
            yield leaf + " ".join(f)


def ipv6_route(rows):
    """Destination, source, next hop, flags, device; no metric and no counts of its use."""
    for row in rows:
        f = row.split()
        yield f"{f[0]}/{f[1]} from {f[2]}/{f[3]} by {f[4]} flags {f[8]} {f[9]}"


def first_column(rows):
    return (row.split()[0] for row in rows)


READ = {**dict.fromkeys(("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "udplite", "udplite6"), sockets), "fib_trie": fib_trie,
        "ipv6_route": ipv6_route, "dev": lambda rows: first_column(rows[2:]), "netlink": lambda rows: (r.split()[1] for r in rows[1:]),
        **dict.fromkeys(("route", "if_inet6", "arp"), lambda rows: rows)}


def see_files():
    for folder, _, names in os.walk(NET):
        for name in names:
            path = os.path.join(folder, name)
            name, rows = os.path.relpath(path, NET), lines(path)
            line("net", name, "is there" if name in READ or name in NAME_ONLY else f"{len(rows)} lines")
            for thing in READ.get(name, lambda _: ())(rows):
                line("net", name, thing)


def see_interfaces():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for index in range(1, 10):
            try:
                request = struct.pack("16si20x", b"", index)
                name = fcntl.ioctl(s, 0x8910, request)[:16]  # SIOCGIFNAME
            except OSError:
                continue
            flags, = struct.unpack_from("H", fcntl.ioctl(s, SIOCGIFFLAGS, name + bytes(24)), 16)
            line("interface", name.rstrip(b"\0").decode(), f"flags {flags:#x}")


def see_mounts():
    for row in lines("/proc/self/mountinfo"):
        before, after = row.split(" - ")
        line("mount", before.split()[4], f"{before.split()[5]} {after.split()[0]}")


def see_rest():
    for name, value in os.environ.items():
        line("env", name, value)
    for path in "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf":
        for row in lines(path):
            line("file", path, row)
    for folder, _, names in os.walk("/etc/cloche"):
        for name in names:
            path = os.path.join(folder, name)
            line("file", path, f"mode {os.stat(path).st_mode:o}")
    for fd in os.listdir("/proc/self/fd"):
        if os.path.exists(f"/proc/self/fd/{fd}"):  # not that of the listing
            line("descriptor", fd, os.readlink(f"/proc/self/fd/{fd}").split(":")[0])


see_files()
see_interfaces()
see_mounts()
see_rest()
