# SPDX-License-Identifier: Apache-2.0
"""The job of a bot that reviews pull requests: check out, install, test, take the patch.

Each step is a command of its own in one sandbox and leaves a record of its own; records, output and patch are the evidence.
The change is tested by its own tests, so it is code that nobody has read: git, pip and the tests see the sandbox only.
Needs a service (`cloche serve`). What follows EVIDENCE goes to `cloche create`, as `--network allow --preset pypi`.

    python3 review_pull_request.py REPOSITORY BRANCH EVIDENCE [OPTION...]

Exit status: 0: the tests pass. 1: a step failed; that is evidence for the model, and not to be tried again. 2: no step is to blame:
the sandbox failed or ran into a limit, as `error_code` in EVIDENCE/summary.json says, or there was none, as stderr says.
"""
import json
import subprocess
import sys
from pathlib import Path

STEPS = [  # name, seconds, what bash does in /workspace
    ("checkout", 60, 'git clone -q repository.bundle checkout && git -C checkout checkout -q --detach "origin/$BRANCH"'),
    ("install", 300, "cd checkout && if [ -e requirements.txt ]; then python3 -m pip install -q --target ../packages -r requirements.txt; fi"),
    ("test", 300, "cd checkout && PYTHONPATH=../packages python3 -m unittest discover -v"),
    ("patch", 60, "git -C checkout diff origin/HEAD...HEAD > patch.diff"),
]


def cloche(*args, **more):
    return subprocess.run(["cloche", *args], stdout=subprocess.PIPE, check=True, **more).stdout


def steps(box, branch, evidence):
    """The record of each; the patch is taken of a change whose tests fail, too."""
    for name, seconds, script in STEPS:
        done = subprocess.run(["cloche", "exec", box, "--json", f"--timeout={seconds}s", f"--env=BRANCH={branch}", "--", "bash", "-c", script],
                              stdout=subprocess.PIPE, text=True)
        (evidence / f"{name}.json").write_text(done.stdout)
        result = json.loads(done.stdout)
        yield {"step": name, **{key: result[key] for key in ("ok", "exit_code", "reason", "error_code", "model_message")}}
        if not result["ok"] and (result["reason"] != "exited" or name != "test"):
            return


def review(repository, branch, evidence, options):
    bundle = subprocess.run(["git", "-C", repository, "bundle", "create", "-q", "-", "--all"], stdout=subprocess.PIPE, check=True).stdout
    box = cloche("create", "--timeout=30m", "--memory=1g", "--label=job=review", *options, text=True).strip()
    try:
        cloche("cp", "-", f"{box}:repository.bundle", input=bundle)
        done = list(steps(box, branch, evidence))
        if done[-1]["step"] == "patch" and done[-1]["ok"]:
            cloche("cp", f"{box}:patch.diff", str(evidence))
    finally:
        cloche("kill", box)
    (evidence / "summary.json").write_text(json.dumps({"sandbox": box, "branch": branch, "steps": done}, indent=1))
    return done


evidence = Path(sys.argv[3])
evidence.mkdir(parents=True, exist_ok=True)
try:
    done = review(sys.argv[1], sys.argv[2], evidence, sys.argv[4:])
except (OSError, subprocess.CalledProcessError, json.JSONDecodeError) as e:
    print(e, file=sys.stderr)
    sys.exit(2)
for step in done:
    print(f"{step['step']}: {'ok' if step['ok'] else step['model_message']}")
sys.exit(0 if all(s["ok"] for s in done) else 1 if all(s["reason"] == "exited" for s in done) else 2)
