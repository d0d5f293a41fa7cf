# SPDX-License-Identifier: Apache-2.0
"""A child of a prepared Python against `/usr/bin/python3 -`: the same program must give the same output, error output,
status and files. Without isolation, so that only the interpreter's side is compared."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import zygote

PYTHON = "/usr/bin/python3"
SCRIPTS = Path(__file__).resolve().parents[1] / "zygote" / "scripts.txt"
# What programs often import; the differential holds with them loaded, too.
PRELOAD = ("json", "re", "random", "threading", "logging", "multiprocessing", "asyncio", "subprocess", "tempfile", "ssl",
           "sqlite3", "datetime", "decimal", "dataclasses", "typing", "concurrent.futures", "unittest", "uuid", "csv")
# Programs whose answer says that something is loaded; python3 - gives the other answer, too, when it has imported all that.
NOT_PRELOADED = {"modules that are there", "modules are no more", "atexit internals", "monkeypatched import",
                 "del in an attribute of a class of a module"}
ADDRESS = re.compile(rb"0x[0-9a-f]{6,16}")


def load():
    text = SCRIPTS.read_text()
    parts = [p.split("\n", 1) for p in text.split("#### ")[1:]]
    programs = {name: code.encode() for name, code in parts}
    assert len(programs) == len(parts), "two programs with one name"
    programs.update({
        "a large source": b"x = [\n" + b"".join(b"    %d, 'text text text',\n" % i for i in range(6000)) + b"]\nprint(len(x))\n1/0\n",
        "a byte order mark": b"\xef\xbb\xbfprint('bom')\n",
        "a byte order mark and a cookie": b"\xef\xbb\xbf# coding: latin-1\nprint('x')\n",
        "a cookie": b"# -*- coding: latin-1 -*-\nprint('\xe4', ascii('\xe4'))\n",
        "a cookie on line two": b"#!/usr/bin/python3\n# vim: set fileencoding=cp1252 :\nprint(ascii('\x80'))\n",
        "an unknown cookie": b"# coding: there-is-none\nprint(1)\n",
        "no UTF-8": b"print('\xff')\n",
        "no UTF-8 in a comment": b"x = 1\n# \xe9\nprint(x)\n",
        "a nul byte": b"print(1)\nx = '\x00'\nprint(2)\n",
        "a nul byte at the end": b"print(1)\n\x00",
        "carriage returns": b"print(1)\r\nif True:\r\n    print('''a\r\nb''')\r\n",
        "old carriage returns": b"print(1)\rprint(2)\r",
        "a form feed": b"print(1)\n\x0cprint(2)\n",
        "no newline": b"print(1)",
        "no newline after a block": b"if 1:\n    print(1)",
        "a backslash at the end": b"print(1) \\",
        "an open string at the end": b"'''abc\n",
        "end of transmission": b"print(1)\n\x04",
        "only a newline": b"\n",
        "a long line": b"x = '" + b"y" * 300000 + b"'\nprint(len(x))\n",
        "deep nesting": b"(" * 300 + b")" * 300 + b"\n",
        "deep expression": b"x = " + b"-" * 5000 + b"1\n",
        "many errors": b"".join(b"def f%d(): f%d()\n" % (i, i + 1) for i in range(50)) + b"f0()\n",
    })
    return programs


PROGRAMS = load()


@pytest.fixture(scope="module")
def plainly_loaded():
    """sys.modules of python3 -."""
    code = "import sys; print(*sys.modules)"
    return subprocess.run([PYTHON, "-"], input=code, env=zygote.ENV, cwd="/", capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def plain_zygote():
    with zygote.Zygote() as one:
        yield one


@pytest.fixture(scope="module")
def full_zygote():
    with zygote.Zygote(PRELOAD) as one:
        yield one


class Place:
    """One path for both, empty at each start."""

    def __init__(self, path):
        self.path = path

    def fresh(self):
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(mode=0o755)
        return str(self.path)

    def files(self):
        return sorted((str(p.relative_to(self.path)), p.stat().st_size if p.is_file() else -1, p.stat().st_mode)
                      for p in self.path.rglob("*"))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "w")


def without_addresses(*texts):
    return [ADDRESS.sub(b"0xADDRESS", t) for t in texts]


def plain(place, code, argv=("-",), env=None, stdin=None):
    done = subprocess.run([PYTHON, *argv], input=code if stdin is None else stdin, env=zygote.ENV if env is None else env,
                          cwd=place.fresh(), capture_output=True, start_new_session=True, timeout=60)
    return *without_addresses(done.stdout, done.stderr), done.returncode, place.files()


def prepared(place, interpreter, code, *, warm=False, argv=("-",), env=None, stdin=None):
    cwd = place.fresh()
    out, err, status = interpreter.run(code, warm=warm, argv=argv, env=env, stdin=stdin, cwd=cwd)
    return *without_addresses(out, err), status, place.files()


def filled(code, place, loaded):
    return code.replace(b"CWD", repr(str(place.path)).encode()).replace(b"LOADED", ascii(set(sorted(loaded))).encode())


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_python3_does(name, place, plain_zygote, full_zygote, plainly_loaded):
    code = filled(PROGRAMS[name], place, plainly_loaded)
    expected = plain(place, code)
    assert prepared(place, plain_zygote, code) == expected
    assert prepared(place, plain_zygote, code, warm=True) == expected
    if name not in NOT_PRELOADED:
        assert prepared(place, full_zygote, code, warm=True) == expected


ARGUMENTS = {
    "more arguments": (("-", "a", "b c", "\u00e4", ""), b"import sys; print(sys.argv, sys.orig_argv)"),
    "an argument that is not UTF-8": (("-", "\udcff"), b"import sys; print(ascii(sys.argv), ascii(sys.orig_argv))"),
    "an argument that looks like an option": (("-", "-c", "-V", "--"), b"import sys; print(sys.argv)"),
}
COMMANDS = {
    "command": ("print(1)",),
    "command arguments": ("import sys; print(sys.argv, sys.orig_argv, sys.path[0] == '')", "a", "-x", "\u20ac"),
    "command reads stdin": ("import sys; print(sys.stdin.read(), input)",),
    "command names": ("print(sorted(globals()), list(globals())); print('__file__' in globals())",),
    "command error": ("def f():\n  1/0\nf()",),
    "command syntax error": ("x = (",),
    "command exit": ("import sys; print('x'); sys.exit(4)",),
    "command exit text": ("raise SystemExit('text')",),
    "command interrupt": ("raise KeyboardInterrupt",),
    "command empty": ("",),
    "command cookie is ignored": ("# coding: latin-1\nprint(ascii('\u00e4'))",),
    "command del": ("class A:\n  def __del__(self): print('del')\na = A()",),
    "command multiprocessing": ("import multiprocessing as m\nif __name__ == '__main__':\n  p = m.get_context('spawn').Process(target=print, args=('hi',)); p.start(); p.join()",),
    "command stack": ("import traceback; traceback.print_stack()",),
    "command carriage return": ("print(1)\r\nprint(2)\r\n",),
    "command of blanks": ("   print(1)",),
}
ENVIRONMENTS = {
    "more": {**zygote.ENV, "A": "1", "B": "", "C": "x=y"},
    "less": {k: v for k, v in zygote.ENV.items() if k in ("HOME", "PATH", "LANG")},
    "another order": dict(reversed([*zygote.ENV.items(), ("Z", "1")])),
    "a time zone": {**zygote.ENV, "TZ": "Asia/Tokyo"},
    "bytes": {**{k.encode(): v.encode() for k, v in zygote.ENV.items()}, b"RAW": b"\xff\xfe"},
    "a limit of others": {**zygote.ENV, "NODE_OPTIONS": "--max-old-space-size=192"},
}
SHOW_ENVIRONMENT = b"""
import os, time, subprocess, ctypes
print(os.environb, list(os.environ), os.environ._data is __import__("posix").environ)
print(time.tzname, time.timezone, time.localtime(0).tm_hour)
print(subprocess.run(["env"], capture_output=True).stdout)
os.environ["NEW"] = "n"; del os.environ["HOME"]
print(subprocess.run(["env"], capture_output=True).stdout)
"""


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name, place, plain_zygote):
    argv, code = ARGUMENTS[name]
    assert prepared(place, plain_zygote, code, argv=argv) == plain(place, code, argv)


@pytest.mark.parametrize("name", COMMANDS)
def test_as_python3_c_does(name, place, plain_zygote, full_zygote):
    argv = ("-c", *COMMANDS[name])
    expected = plain(place, b"", argv, stdin=b"input\nof it")
    assert prepared(place, plain_zygote, b"", argv=argv, stdin=b"input\nof it") == expected
    assert prepared(place, full_zygote, b"", argv=argv, stdin=b"input\nof it", warm=True) == expected


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment(name, place, plain_zygote):
    expected = plain(place, SHOW_ENVIRONMENT, env=ENVIRONMENTS[name])
    assert expected[2] == 0
    assert prepared(place, plain_zygote, SHOW_ENVIRONMENT, env=ENVIRONMENTS[name]) == expected


def test_there_are_enough():
    assert len(PROGRAMS) >= 300
