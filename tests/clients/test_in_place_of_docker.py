# SPDX-License-Identifier: Apache-2.0
"""Programs that used a container engine, with one call of cloche in its place: examples/docker_sdk.py and DockerSandbox.java, given
what such programs are tried with."""
import json
import os
import subprocess

import clients
import cloche
import pytest

pytestmark = pytest.mark.needs("native", "python")
FETCH = "import urllib.request as u; u.urlopen('http://example.com')"
SHORT = """
import urllib.request
try:
    urllib.request.urlopen('http://example.com')
except OSError as e:
    raise SystemExit(f"{type(e).__name__} {e}")
"""  # what a traceback says last is cut at 1,024 bytes


def example(tmp_path, command, code, seconds=40):
    """What it prints. `cloche` is in its PATH; nothing of an engine is."""
    (tmp_path / "cloche").symlink_to(cloche.binary())
    env = cloche.environment({"CLOCHE_DIRECT": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(cloche.TOP / "python")})
    done = subprocess.run([*command, code], env=env, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("code, success, words", [
    ("print(2 + 2)", True, ["4"]), ("pass", True, ["(no output)"]), ("1 / 0", False, ["ZeroDivisionError"]),
    ("b = [0] * 10**8", False, ["memory"]), (FETCH, False, ["URLError", "[Errno -3] Temporary failure in name resolution"]),
    ("import os; print({k: v for k, v in os.environ.items() if 'SECRET' in k})", True, ["{}"])])
def test_docker_sdk(tmp_path, code, success, words):
    said = json.loads(example(tmp_path, ["python3", cloche.TOP / "examples" / "docker_sdk.py"], code))
    assert said["success"] is success and set(said) == {"success", "output" if success else "error"}
    text = said["output" if success else "error"]
    assert text == words[0] if success else all(w in text for w in words), said


def test_docker_sdk_takes_no_timeout():
    """What the example says of docker-py, by docker-py: no engine is asked for that."""
    program = ("import docker\nc = docker.DockerClient(base_url='unix:///nowhere.sock', version='1.43')\n"
               "try: c.containers.run('python:3.11-slim', ['python', '-c', '1'], timeout=30)\nexcept TypeError as e: print(e)")
    done = subprocess.run([clients.python("requirements-docker.txt"), "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "run() got an unexpected keyword argument 'timeout'\n", done


@pytest.mark.needs("java")
@pytest.mark.parametrize("code, status, out, err", [
    ("print(sum(range(10)))", "0", "45\n", ""), (SHORT, "1", "", "URLError <urlopen error [Errno -3] Temporary failure in name resolution"),
    ("open('/hacked.txt', 'w')", "1", "", "Read-only file system"), ("while True: pass", "124 (timed out)", "", "stopped after 3 s of wall time"),
    ("print('a' * 100_000)", "0", "a" * 1024, "truncated: kept 1024 of 100001 bytes")])
def test_docker_sandbox_in_java(tmp_path, code, status, out, err):
    said = example(tmp_path, ["java", cloche.TOP / "examples" / "DockerSandbox.java"], code)
    head, _, errors = said.partition("\nstderr:\n")
    assert head == f"exit={status}\nstdout:\n{out}" and err in errors and len(errors) < 3000, said
