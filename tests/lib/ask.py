# SPDX-License-Identifier: Apache-2.0
"""`cloche ask` against provider.py."""
import json
import os
import signal
import subprocess
from types import SimpleNamespace

import cloche

QUESTION = "What is the 30th Fibonacci number? Use code."
FIBONACCI = json.dumps({"code": "a, b = 0, 1\nfor _ in range(30): a, b = b, a + b\nprint(a)"})
KEY = "sk-scripted-0123456789abcdef"
TOLD = "exit=0\nstdout:\n832040\nstderr:"


def environment(family=None, provider=None, env=None, key=KEY):
    """Where the provider is, its key, and nothing of the caller's keys."""
    base = {k: v for k, v in cloche.environment().items() if not k.endswith("_API_KEY") and k not in ("MODEL", "BASE_URL")}
    if family:
        base.update({"MODEL": family.model, "BASE_URL": provider.url + family.base})
        if key:
            base[family.key] = key
    base.update(env or {})
    if "CLOCHE_SOCKET" in (env or {}):
        base.pop("CLOCHE_DIRECT", None)
    return base


def start(args, env, cwd=None, **more):
    return subprocess.Popen([cloche.binary(), "ask", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd or "/", start_new_session=True,
                            **{"stdin": subprocess.DEVNULL, **more})


def run(args, env, cwd=None, stdin=None, timeout=60):
    """returncode, out and err as text, and json if --json was there."""
    p = start(args, env, cwd, **({"stdin": subprocess.PIPE} if stdin is not None else {}))
    try:
        out, err = p.communicate(stdin, timeout)
    except BaseException:
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        raise
    out, err = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
    return SimpleNamespace(returncode=p.returncode, out=out, err=err, json=json.loads(out) if "--json" in args and out.strip() else None)


def ask(family, provider, *args, question=QUESTION, env=None, key=KEY, **more):
    return run([*args, question], environment(family, provider, env, key), **more)
