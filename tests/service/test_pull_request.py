# SPDX-License-Identifier: Apache-2.0
"""examples/review_pull_request.py: what it says of changes that are good, bad and greedy, and the evidence that it leaves."""
import json
import os
import subprocess

import cloche
import pytest


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """main, whose tests pass, and three changes to it."""
    at = tmp_path_factory.mktemp("repository")

    def git(*args):
        subprocess.run(["git", "-C", at, "-c", "user.name=n", "-c", "user.email=e@x", *args], check=True, stdout=subprocess.DEVNULL)

    def commit(branch, expected, more=""):
        git("checkout", "-q", "-B", branch, *([] if branch == "main" else ["main"]))
        (at / "sums.py").write_text(f"def add(a, b):\n    return a + b  # {branch}\n")
        (at / "test_sums.py").write_text(f"import sums, unittest\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        {more}\n"
                                         f"        self.assertEqual(sums.add(1, 2), {expected})\n")
        git("add", ".")
        git("commit", "-q", "-m", branch)
    git("init", "-q", "-b", "main")
    commit("main", 3)
    commit("good", 3, "open('/workspace/mark', 'w').close()")
    commit("bad", 4)
    commit("greedy", 3, "[0] * (2 * 10**8)")
    git("checkout", "-q", "main")
    return at


@pytest.mark.parametrize("branch, status, said, code", [
    ("good", 0, {"checkout": "ok", "install": "ok", "test": "ok", "patch": "ok"}, None),
    ("bad", 1, {"checkout": "ok", "install": "ok", "test": "exited", "patch": "ok"}, None),
    ("nowhere", 1, {"checkout": "exited"}, None),
    ("greedy", 2, {"checkout": "ok", "install": "ok", "test": "oom"}, "SANDBOX_OOM")])
def test_review_pull_request(service, repository, tmp_path, branch, status, said, code):
    (tmp_path / "cloche").symlink_to(cloche.binary())
    env = cloche.environment({"CLOCHE_SOCKET": service.sock, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    evidence = tmp_path / "evidence"
    done = subprocess.run(["python3", cloche.TOP / "examples" / "review_pull_request.py", repository, branch, evidence], env=env,
                          stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == status, done
    summary = json.loads((evidence / "summary.json").read_text())
    assert {s["step"]: "ok" if s["ok"] else s["reason"] for s in summary["steps"]} == said
    assert summary["steps"][-1]["error_code"] == code if code else True
    tested = json.loads((evidence / "test.json").read_text())["stderr"] if "test" in said else ""
    assert {"good": "OK", "bad": "AssertionError: 3 != 4"}.get(branch, "") in tested
    if "patch" in said:
        assert f"+    return a + b  # {branch}" in (evidence / "patch.diff").read_text()
    assert service.root.get(f"/v1/sandboxes/{summary['sandbox']}")["state"] == "ended"


def test_review_pull_request_without_a_service(repository, tmp_path):
    """Nothing was tested: that is no failed test."""
    (tmp_path / "cloche").symlink_to(cloche.binary())
    env = cloche.environment({"CLOCHE_SOCKET": str(tmp_path / "none.sock"), "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    done = subprocess.run(["python3", cloche.TOP / "examples" / "review_pull_request.py", repository, "good", tmp_path / "evidence"], env=env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == "" and "none.sock" in done.stderr, done
