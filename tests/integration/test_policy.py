# SPDX-License-Identifier: Apache-2.0
"""Rules of the network by the command line: refused where they are given, explained, shown by a dry run; docs/network.md by copy
and paste; and what the operator's file says of them."""
import json
import os
import re
import subprocess
from pathlib import Path

import cloche
import pytest
import shape

PAGE = (cloche.TOP / "docs" / "network.md").read_text()
OWN = Path(cloche.binary()).parent / "src" / "network" / "presets"

pytestmark = pytest.mark.needs("native")


def explain(*args, **env):
    r = cloche.run(["policy", "explain", *args, "--json"], json=False, env=env)
    assert r.returncode in (0, 1), r
    return json.loads(r.stdout)


@pytest.fixture
def user(tmp_path):
    """An ordinary user's folder of configuration, for runs without root."""
    cloche.need("root")
    folder = tmp_path / "config" / "cloche"
    (folder / "presets").mkdir(parents=True)
    cloche.open_the_way(tmp_path)

    def run(*args):
        return cloche.run(args, json=False, uid=65534, env={"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)})
    run.folder = folder
    return run


@pytest.mark.parametrize("args, words", [
    (["--allow", "pypi.org"], "--allow pypi.org: there is no network under --network none; add --network allow"),
    (["--deny", "pypi.org"], "--deny pypi.org: there is no network"),
    (["--preset", "pypi"], "--preset pypi: there is no network"),
    (["--credential", "x"], "--credential x: there is no network"),
    (["--network", "none", "--allow", "a.b"], "there is no network under --network none"),
    (["--network", "allow", "--allow", ""], "--allow: names no host"),
    (["--network", "allow", "--allow", "*"], "--network open"),
    (["--network", "allow", "--allow", "127.1"], "127.1"),
    (["--network", "allow", "--allow", "10.0.0.0/8"], "within="),
    (["--network", "allow", "--allow", "a.b\nallow c.d"], "control character"),
    (["--network", "on"], "none, allow"),
    (["--network-bytes", "0"], "--network-bytes"),
])
def test_wrong_rules_are_usage_errors(args, words):
    r = cloche.run(["run", *args, "true"], json=False)
    shape.plain_error(r, 2, words)


def test_a_preset_that_is_not_there_is_named():
    r = cloche.run(["policy", "explain", "--network", "allow", "--preset", "nope", "a.b"], json=False)
    shape.plain_error(r, 125, "there is no preset nope (there are: conda crates debian github-read go npm pypi)")


def test_lists_with_mode_allow_deny_all():
    rows = explain("--network", "allow", "https://pypi.org/", "1.1.1.1:53")
    assert [r["allowed"] for r in rows] == [False, False]
    assert rows[0]["stages"] == [{"stage": "connection", "verdict": "denied", "rule": None, "source": "request",
                                  "why": "no rule allows pypi.org:443"}]


def test_explain_says_which_rule_and_why():
    rows = explain("--network", "allow", "--preset", "pypi", "--allow", "GET https://api.test/x/*", "--deny", "t.pypi.org",
                   "https://pypi.org/simple/", "http://pypi.org", "GET", "https://api.test/x/1", "POST", "https://api.test/x/1",
                   "https://api.test/x/%2e%2e/y", "t.pypi.org", "https://[::1]:8443/")
    assert [(r["host"], r["port"], r["allowed"], r["opens_tls"]) for r in rows] == [
        ("pypi.org", 443, True, False), ("pypi.org", 80, False, False), ("api.test", 443, True, True), ("api.test", 443, False, True),
        ("api.test", 443, False, True), ("t.pypi.org", 443, False, False), ("::1", 8443, False, False)]
    assert rows[0]["stages"][0]["source"] == "preset pypi" and rows[0]["stages"][0]["rule"] == "allow pypi.org:443"
    assert [s["stage"] for s in rows[2]["stages"]] == ["connection", "request"]
    assert rows[5]["stages"][0]["rule"] == "deny t.pypi.org"


@pytest.mark.parametrize("target", ["169.254.169.254", "127.0.0.1", "10.1.2.3", "[::1]:80", "100.64.0.1", "[fd00:ec2::254]:80", "168.63.129.16", "0.0.0.0"])
def test_explain_open_refuses_what_is_inside(target):
    r, = explain("--network", "open", target)
    assert not r["allowed"] and r["stages"][-1]["stage"].startswith("address ") and r["stages"][-1]["verdict"] == "denied"


@pytest.mark.parametrize("target", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]:80", "[2002:7f00:1::]",
                                    "fe80::1%lo", "ftp://a.b", "a.b:0", "a b"])
def test_explain_has_no_opinion_of_what_is_no_host(target):
    r = cloche.run(["policy", "explain", "--network", "open", target], json=False)
    assert r.returncode == 2 and r.stdout == b"" and r.stderr.startswith(b"cloche: "), r


def test_usage():
    for args in ([], ["explain"], ["say", "a.b"]):
        r = cloche.run(["policy", *args], json=False)
        assert r.returncode == 2, (args, r)


def test_every_preset_reads():
    names = sorted(p.stem for p in OWN.glob("*.rules"))
    assert names == ["conda", "crates", "debian", "github-read", "go", "npm", "pypi"]
    for name in names:
        r, = explain("--network", "allow", "--preset", name, "nothing.test")
        assert not r["allowed"], name


# (preset, method, url, is it allowed)
@pytest.mark.parametrize("preset, method, url, allowed", [
    ("github-read", "GET", "https://github.com/a/b/info/refs?service=git-upload-pack", True),
    ("github-read", "POST", "https://github.com/a/b/git-upload-pack", True),
    ("github-read", "POST", "https://github.com/a/b/git-receive-pack", False),
    ("github-read", "POST", "https://github.com/a/b/issues", False),
    ("github-read", "GET", "https://gist.github.com/a", False),
    ("github-read", "DELETE", "https://api.github.com/repos/a/b", False),
    ("npm", "GET", "https://registry.npmjs.org/left-pad", True),
    ("debian", "GET", "http://deb.debian.org/debian/dists/stable/InRelease", True),
    ("crates", "GET", "https://index.crates.io/se/rd/serde", True),
    ("go", "GET", "https://proxy.golang.org/x", True),
    ("conda", "GET", "http://conda.anaconda.org/x", False),
])
def test_presets_do_what_their_names_say(preset, method, url, allowed):
    r, = explain("--network", "allow", "--preset", preset, method, url)
    assert r["allowed"] is allowed


def test_dry_run_runs_nothing(tmp_path):
    r = cloche.run(["run", "--direct", "--dry-run", "--json", "--memory", "64m", "--network", "allow", "--preset", "pypi", "--allow", "*.github.io",
                    "--out", str(tmp_path / "out"), "--", "touch", "/output/x"], json=False)
    assert r.returncode == 0 and r.stderr == b"", r
    plan = json.loads(r.stdout)
    assert plan["command"] == ["touch", "/output/x"] and plan["by"] == "this process"
    assert plan["settings"]["memory"] == {"value": str(64 << 20), "origin": "flag"}
    assert plan["settings"]["timeout"]["origin"] == "default"
    assert plan["settings"]["preset"] == {"value": "pypi", "origin": "flag"}
    assert plan["network"]["mode"] == "allow" and "allow files.pythonhosted.org:443" in plan["network"]["rules"]
    assert len(plan["network"]["warnings"]) == 1 and "github.io" in plan["network"]["warnings"][0]
    assert not (tmp_path / "out").exists()
    r = cloche.run(["run", "--direct", "--dry-run", "--", "echo", "never said"], json=False)
    assert r.returncode == 0 and b'command          "never said"' in r.stdout and b"\nnever said" not in r.stdout
    r = cloche.run(["run", "--direct", "--dry-run", "--allow", "a.b", "true"], json=False)
    shape.plain_error(r, 2, "there is no network")


def test_PX_24_warning_on_stderr(must_work):
    """Before the run, whatever becomes of it, and not with --quiet."""
    for more, warned in (([], True), (["--quiet"], False)):
        r = cloche.run(["run", "--direct", "--network", "allow", "--allow", "*.github.io", *more, "--", "true"], json=False)
        assert (b"cloche: warning: allow *.github.io: anybody can have a name below github.io" in r.stderr) is warned, r


def test_a_users_own_files(user):
    (user.folder / "presets" / "mine.rules").write_text("allow only.mine\n")
    (user.folder / "presets" / "pypi.rules").write_text("allow mirror.mine\n")
    (user.folder / "presets" / "bad.rules").write_text("# ok\nallow *\n")
    (user.folder / "cloche.yaml").write_text(
        "defaults: {network: allow, preset: [mine]}\nresolve: {only.mine: [127.0.0.1]}\n"
        "credentials:\n  k: {host: only.mine, header: X-Key, value: 'k {}', env: SOME_SECRET}\n")
    r = user("policy", "explain", "--json", "--preset", "pypi", "only.mine", "mirror.mine", "pypi.org")
    rows = json.loads(r.stdout)
    assert [x["allowed"] for x in rows] == [False, True, False], r
    assert rows[0]["stages"][1]["stage"] == "address 127.0.0.1"  # it is allowed by name, and resolves inside
    r = user("policy", "explain", "--preset", "bad", "only.mine")
    assert r.returncode == 125 and b"bad.rules line 2: \"*\"" in r.stderr, r
    # the last word: none, and the file's preset goes with it
    r = user("policy", "explain", "--network", "none", "--json", "only.mine")
    assert json.loads(r.stdout)[0]["stages"][0]["why"] == "there is no network (mode none)", r
    r = user("policy", "explain", "--json", "--credential", "k", "https://only.mine/")
    assert json.loads(r.stdout)[0]["credential"] == "k", r
    r = user("policy", "explain", "--credential", "nobody", "a.b")
    assert r.returncode == 125 and b"there is no credential nobody" in r.stderr, r
    r = user("config", "show")
    shown = r.stdout.decode()
    assert re.search(r"^network +file +allow$", shown, re.M) and re.search(r"^preset +file +mine$", shown, re.M), shown
    assert re.search(r"^credential k +file +only.mine:443 header X-Key, env SOME_SECRET$", shown, re.M), shown
    assert re.search(r'^resolve only.mine +file +\["127.0.0.1"\]$', shown, re.M), shown


@pytest.mark.parametrize("text, words", [
    ("policy: {network: some}\n", "network is none, allow or open"),
    ("policy: {network_allow: []}\n", "network_allow: is empty"),
    ("resolve: {a.b: [127.1]}\n", "is no address"),
    ("credentials: {g: {host: a.b, header: X, file: /x, env: Y}}\n", "needs one of file, env and command"),
    ("upstream_ca: x\n", "absolute path"),
])
def test_serve_check_knows_the_keys(tmp_path, text, words):
    (tmp_path / "c.yaml").write_text(text)
    r = cloche.run(["serve", "--check", "--config", tmp_path / "c.yaml"], json=False)
    assert r.returncode == 1 and words.encode() in r.stderr, r


def test_the_pages_examples():
    """docs/network.md: each `cloche policy` prints what stands below it. (What needs a network is tested by others.)"""
    blocks = re.findall(r"^```sh\n(cloche policy .*?)^```\n```text\n(.*?)^```$", PAGE, re.S | re.M)
    assert len(blocks) >= 4
    env = {**cloche.environment(), "PATH": f"{Path(cloche.binary()).parent}:{os.environ['PATH']}"}
    for commands, text in blocks:
        done = subprocess.run(["bash", "-c", commands], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60)
        assert done.stdout == text, commands
