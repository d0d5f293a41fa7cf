# SPDX-License-Identifier: Apache-2.0
"""Other processes, by /proc. Any of them may end between two looks, or between a list of them and the first look: what is gone is
empty here, and has no children. A test that has to see a process alive says so itself."""
import os
from pathlib import Path


def of(pid, what):
    """Its /proc/PID/WHAT, stripped; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="surrogateescape").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def name(pid):
    """Up to 15 bytes of it, as the kernel keeps them."""
    return of(pid, "comm")


def command(pid):
    """Its words."""
    line = of(pid, "cmdline")
    return line.split("\0")[:-1] if line else []


def executable(pid):
    """The file's name without its folder."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent(pid):
    """0: it is gone."""
    fields = of(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def children(pid):
    return [int(p) for p in of(pid, f"task/{pid}/children").split()]


def child(pid, called):
    """Its first child of this name, or None."""
    return next((p for p in children(pid) if name(p) == called[:15]), None)
