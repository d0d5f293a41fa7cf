# SPDX-License-Identifier: Apache-2.0
"""Run code nobody has read in a sandbox that is new, strict and thrown away.

    >>> import cloche
    >>> cloche.run_python("print(sum(range(10)))").stdout
    '45\\n'

One module, no dependencies: it runs the `cloche` command with --json and gives the result. Limits are
keyword arguments named as the command's options: timeout="3s", memory="128m", pids_limit=32, env={...},
in_=["data.csv"], out="results". A command that fails, a timeout, an out-of-memory kill are results, not
exceptions; ClocheError means that the request itself was wrong or cloche is not usable here.

    >>> [r.stdout for r in cloche.map(["print(1)", "print(2)"], timeout="2s")]
    ['1\n', '2\n']
"""
import base64
import json
import os
import signal
import subprocess
import threading

# map is not among them: `from cloche import *` leaves the built-in one alone.
__all__ = ["ClocheError", "Result", "run", "run_python", "run_bash", "run_node"]


class ClocheError(Exception):
    """The request was wrong, or cloche cannot be run. The text says which object and why."""


class Result:
    """What a run came to: the result object's keys as attributes (r.reason, r.exit_code, r.usage, ...).

    stdout and stderr are str, undecodable bytes replaced; stdout_bytes and stderr_bytes are exact.
    """

    def __init__(self, fields):
        self.raw = fields
        raw = fields["encoding"] == "base64"
        for name in ("stdout", "stderr"):
            text = fields[name]
            data = base64.b64decode(text) if raw else text.encode("utf-8", "surrogatepass")
            setattr(self, name + "_bytes", data)
            setattr(self, name, data.decode("utf-8", "replace"))

    def __getattr__(self, name):
        try:
            return self.__dict__["raw"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self):
        return f"<cloche.Result {self.reason} exit_code={self.exit_code} stdout={self.stdout[:40]!r}>"


def _options(limits):
    """Keyword arguments as command-line options."""
    argv = []
    for name, value in limits.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            argv.append(flag)
        elif isinstance(value, dict):
            argv += [f"{flag}={key}={item}" for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            argv += [f"{flag}={item}" for item in value]
        else:
            argv.append(f"{flag}={value}")
    return argv


def _call(verb, operands, stdin, limits):
    program = os.environ.get("CLOCHE", "cloche")
    argv = [program, verb, "--json", *_options(limits), *operands]
    if isinstance(stdin, str):
        stdin = stdin.encode("utf-8", "surrogateescape")
    try:
        done = subprocess.run(argv, input=stdin or b"", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as problem:
        raise ClocheError(f"cannot run {program}: {problem.strerror}") from problem
    if not done.stdout:
        raise ClocheError(done.stderr.decode("utf-8", "replace").strip() or f"{program} gave no result")
    return Result(json.loads(done.stdout))


def run(command, stdin=b"", **limits):
    """Run a command: a list of arguments, or a string for `sh -c` inside the sandbox."""
    operands = ["sh", "-c", command] if isinstance(command, str) else list(command)
    return _call("run", ["--", *operands], stdin, limits)


def run_python(code, *args, **limits):
    """Run Python code, given as data on standard input. args become sys.argv[1:]."""
    return _call("python", ["-", *args], code, limits)


def run_bash(code, *args, **limits):
    """Run a bash script. args become $1..."""
    return _call("bash", ["-", *args], code, limits)


def run_node(code, *args, **limits):
    """Run JavaScript. args become process.argv[2:]."""
    return _call("node", ["-", *args], code, limits)


class _Feed(threading.Thread):
    """Writes a line for every item; what goes wrong is kept in .problem."""

    def __init__(self, pipe, items):
        super().__init__(daemon=True)
        self.pipe, self.items, self.count, self.problem = pipe, items, 0, None

    def run(self):
        try:
            with self.pipe:
                for item in self.items:
                    self.pipe.write(json.dumps(item).encode() + b"\n")
                    self.pipe.flush()
                    self.count += 1
        except BrokenPipeError:
            pass  # its exit says why
        except BaseException as problem:
            self.problem = problem


def map(codes, language="python", jobs=None, **limits):
    """Run each of many codes in a sandbox of its own, so many at a time, and yield what they came to, in order.

    codes may be any iterable, of strings or of dicts with "code" and, if wanted, "args", "stdin" and "tag" (a string; it
    is the result's .tag). It is read no further ahead than it has to be. Where nothing was run, a ClocheError is
    yielded in its place. Who stops iterating ends what runs.
    """
    program = os.environ.get("CLOCHE", "cloche")
    argv = [program, language, "--map", "-", "--quiet", *_options({"jobs": jobs, **limits})]
    try:
        p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as problem:
        raise ClocheError(f"cannot run {program}: {problem.strerror}") from problem
    feed, count = _Feed(p.stdin, codes), 0
    feed.start()
    try:
        for line in p.stdout:
            row, count = json.loads(line), count + 1
            answer = Result(row["result"]) if "result" in row else ClocheError(row["error"]["detail"])
            answer.tag = row["tag"]
            yield answer
        words = p.stderr.read().decode("utf-8", "replace").strip()
        feed.join()
        if feed.problem:
            raise feed.problem
        if p.wait() not in (0, 1) and count < max(feed.count, 1):
            raise ClocheError(words or f"{program} ended with {p.returncode}")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):  # the second ends what runs
            if p.poll() is None:
                p.send_signal(number)
        p.wait()
        p.stdout.close()
        p.stderr.close()
