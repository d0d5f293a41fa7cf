# SPDX-License-Identifier: Apache-2.0
"""cloche as an ordinary user under a real systemd. Started in a login session, whose cgroup is not delegated, it gets a
scope that is from the user's systemd. One machine boots; session.py does it all in there, and here it is judged."""
import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import cloche
import pytest

RUN = Path(__file__).parent / "run.py"
SESSION = Path(__file__).parent / "session.py"
IN = bytes(range(256)) * 40 + b"\r\n\n\0no newline at the end"
APP = "/user.slice/user-1000.slice/user@1000.service/app.slice"


@pytest.fixture(scope="module")
def facts():
    check = subprocess.run([sys.executable, RUN, "--systemd", "--check"], stdout=subprocess.PIPE, text=True, timeout=60)
    cloche.need("vm", check.returncode == 0, check.stdout.strip())
    trees = {cloche.TOP} | {p for p in [Path(cloche.binary()).parent] if not p.is_relative_to(cloche.TOP)}
    got = subprocess.run([sys.executable, RUN, "--systemd", "--timeout", "400", *(f"--tree={t}" for t in trees),
                          "--stdin", "--", "python3", SESSION, cloche.binary()],
                         input=IN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=900)
    assert got.returncode == 0, got.stderr.decode(errors="replace")
    return json.loads(got.stdout)


def result(fact):
    """The result object of a call with --json."""
    text = base64.b64decode(fact["out"])
    assert text, fact
    return json.loads(text)


def assert_limited(fact):
    r = result(fact)
    assert (fact["status"], r["reason"]) == (0, "exited"), r
    limits = {k: r["enforced"][k] for k in ("memory", "pids", "cpu")}
    assert limits == dict.fromkeys(limits, "cgroup-v2")


def test_the_session_is_a_real_one_and_not_delegated(facts):
    login = facts["login"]
    assert (login["pid1"], login["uid"], login["runtime"]) == ("systemd", 1000, "/run/user/1000")
    assert re.fullmatch(r"/user\.slice/user-1000\.slice/session-\w+\.scope", login["cgroup"])
    assert not login["writable"]


def test_limits_are_enforced(facts):
    assert_limited(facts["run"])
    assert result(facts["run"])["enforced"]["rootless"] is True


def test_streams_and_status_pass(facts):
    assert facts["streams"]["status"] == 7
    assert base64.b64decode(facts["streams"]["out"]) == IN
    assert facts["streams"]["err"] == "problem\n"  # and nothing of systemd-run


def test_memory(facts):
    assert result(facts["oom"])["reason"] == "oom" and facts["oom"]["status"] == 137


def test_place(facts):
    assert re.fullmatch(re.escape(APP) + r"/run-\w+\.scope(/supervisor)?", facts["place"]["cgroup"])
    assert len(facts["place"]["units"]) == 1


def test_sigint(facts):
    got = facts["interrupted"]
    assert (got["status"], got["out"]) == (130, ""), got
    assert got["seconds"] < 10


def test_ctrl_c_on_a_terminal(facts):
    assert facts["key"]["status"] == 130, facts["key"]


def test_many_at_once(facts):
    assert facts["many"] == list(range(8))


def test_nothing_is_left(facts):
    """Neither of what ended nor of what was killed."""
    assert facts["after"] == {**facts["before"], "processes": ""}


@pytest.mark.parametrize("name", ["terminal", "terminal beside"])
def test_in_a_terminal_that_the_user_manager_started(facts, name):
    """Such a scope belongs to the user but is not delegated: it must be left alone."""
    assert_limited(facts[name])
    assert re.fullmatch(r"0::" + re.escape(APP) + r"/run-\w+\.scope\n", facts[name]["err"])


def test_in_a_service_that_is_not_delegated(facts):
    assert_limited(facts["service"])


@pytest.mark.parametrize("name", ["by hand", "delegated service"])
def test_delegated_by_hand(facts, name):
    assert_limited(facts[name])


def test_no_cpu_controller(facts):
    """As user@.service was before systemd 252: the refusal says what the administrator can do."""
    r = result(facts["no cpu"])
    assert facts["no cpu"]["status"] == 125 and not r["ok"]
    assert "cpu" in r["message"] and "Delegate=cpu memory pids" in r["message"], r


def test_refusals_name_the_command_to_run(facts):
    got = facts["no systemd-run"]
    assert got["status"] == 125 and "`systemd-run --user --scope -p Delegate=yes cloche ...`" in got["err"]
    got = facts["no manager"]
    assert got["status"] == 125 and "`loginctl enable-linger 1000`" in got["err"]


def test_doctor(facts):
    assert facts["doctor"]["status"] == 0, facts["doctor"]
    got = facts["no manager: doctor"]
    assert got["status"] == 1 and b"`loginctl enable-linger 1000`" in base64.b64decode(got["out"])


def test_without_the_variables_of_the_login(facts):
    """su, sudo -u, cron: the user's systemd is where it always is."""
    assert_limited(facts["unset"])


def test_overhead(facts, record_property):
    """Reported, not judged: this processor is emulated."""
    for name, ms in facts["ms"].items():
        record_property(f"{name}_ms", ms)
    print("cloche run true: {login} ms in the login session, {delegated} ms where delegated".format(**facts["ms"]))
