#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Includes point down only. Reads every .c and .h below src/ and complains about an include that the table does not
allow, one that escapes its folder by "..", and a .c file whose first include is not its own header.

    scripts/check-includes.py [DIRECTORY]     default: src beside this script's folder
"""
import re
import sys
from pathlib import Path

# folder: the folders it may include from, besides its own. A new folder needs a row.
BELOW_RUNTIME = {"base", "network", "sandbox"}
RUNTIMES = BELOW_RUNTIME | {"settings", "protocol", "image", "egress", "native", "runtime"}
SERVICES = RUNTIMES | {"spawner", "pool", "store"}
ALLOWED = {
    "base": set(),
    "sandbox": {"base", "network"},
    "settings": BELOW_RUNTIME | {"image"},
    "protocol": set(),  # the guest protocol, both sides
    "init": {"protocol", "native", "zygote"},  # the program inside: isolates itself with native's steps
    "image": BELOW_RUNTIME,
    "imaging": BELOW_RUNTIME | {"image", "registry", "settings"},  # cloche-image and cloche-decode
    "registry": {"base", "image"},  # libcurl: for programs that are not started once per run
    "network": {"base"},  # what a sandbox may connect to: text in, decisions out, no sockets
    "egress": {"base", "network", "http"},  # cloche-egress: the one process of a sandbox that connects outwards
    "native": BELOW_RUNTIME | {"protocol", "image", "egress"},  # egress: wire.h, starter.h
    "runtime": RUNTIMES,
    "spawner": RUNTIMES | {"zygote"},
    "pool": RUNTIMES | {"spawner"},
    "store": BELOW_RUNTIME,
    "tar": {"base"},
    "http": {"base"},  # the service's HTTP server: knows nothing of what it serves
    "service": SERVICES | {"http", "tar", "agent", "zygote"},  # zygote: fits.h
    "api": SERVICES | {"service"},
    "agent": BELOW_RUNTIME | {"client"},  # tools for models, their protocol, and what does them by requests to a service
    "ask": BELOW_RUNTIME | {"agent", "native", "registry"},  # cloche-ask: models' APIs by libcurl
    "job": SERVICES | {"agent"},
    "zygote": {"base", "native"},  # inside an interpreter: joins what native prepared
    "lib": RUNTIMES,
    "client": BELOW_RUNTIME | {"tar"},  # the command line's side of the service's API
    "cli": SERVICES | {"client", "agent", "ask"},
}
PUBLIC = "cloche"  # <cloche/cloche.h>: not from base
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def check(src):
    """All complaints about the tree, as "file:line: text"."""
    complaints = []
    for path in sorted([*src.rglob("*.c"), *src.rglob("*.h")]):
        folder = path.relative_to(src).parts[0]
        text = path.read_text(encoding="utf-8")
        if folder not in ALLOWED:
            complaints.append(f"{path}:1: folder {folder}/ has no row in the table of check-includes.py")
            continue
        for n, m in enumerate(INCLUDE.finditer(text)):
            line = text.count("\n", 0, m.start(2)) + 1
            quoted, name = m[1] == '"', m[2]
            own = path.with_suffix(".h")
            if n == 0 and path.suffix == ".c" and own.exists() and Path(name).name != own.name:
                complaints.append(f"{path}:{line}: its own header {own.name} comes first")
            if ".." in Path(name).parts:
                complaints.append(f"{path}:{line}: {name}: no \"..\" in an include")
            elif not quoted and Path(name).parts[0] == PUBLIC and folder == "base":
                complaints.append(f"{path}:{line}: base knows nothing of the public header")
            elif quoted and len(Path(name).parts) > 1:
                target = Path(name).parts[0]
                if target not in ALLOWED and target != PUBLIC:
                    complaints.append(f"{path}:{line}: {name}: no such folder in the table")
                elif target not in ALLOWED[folder] | {folder, PUBLIC}:
                    complaints.append(f"{path}:{line}: {folder}/ may not include {name}")
    return complaints


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "src"
    found = check(source)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
