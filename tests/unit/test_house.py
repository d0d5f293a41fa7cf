# SPDX-License-Identifier: Apache-2.0
"""The house around the program: lint, the direction of includes, what the binary links, what the documents say."""
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import cloche
import pytest

TOP = cloche.TOP
# FEASIBILITY: every library costs start-up time on every run. A new one needs a reason here.
MAY_LINK = {"libc.so.6", "libjansson.so.4", "libyaml-0.so.2", "ld-linux-x86-64.so.2", "linux-vdso.so.1"}


def load(path):
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def includes():
    return load(TOP / "scripts" / "check-includes.py")


def tree(base, files):
    for name, text in files.items():
        path = Path(base, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Path(base)


def test_lint():
    done = subprocess.run([TOP / "scripts" / "lint.sh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("files, complaint", [
    ({"base/a.c": '#include "sandbox/spec.h"\n'}, "base/ may not include sandbox/spec.h"),
    ({"native/a.c": '#include "cli/x.h"\n'}, "native/ may not include cli/x.h"),
    ({"native/a.c": '#include "init/x.h"\n'}, "native/ may not include init/x.h"),
    ({"sandbox/a.c": '#include "../base/err.h"\n'}, 'no ".." in an include'),
    ({"attic/a.c": ""}, "has no row"),
    ({"base/a.h": "", "base/a.c": "#include <stdio.h>\n"}, "its own header a.h comes first"),
])
def test_include_check_complains(tmp_path, files, complaint):
    found = includes().check(tree(tmp_path, files))
    assert len(found) == 1 and complaint in found[0]


def test_include_check_is_content_with_downward_includes(tmp_path):
    files = {"base/err.h": "", "base/err.c": '#include "base/err.h"\n#include <stdio.h>\n',
             "native/a.c": '#include "base/err.h"\n#include "sandbox/spec.h"\n#include "protocol/protocol.h"\n',
             "cli/main.c": '#include "runtime/runtime.h"\n'}
    assert includes().check(tree(tmp_path, files)) == []


def test_include_table_has_no_cycle():
    allowed = includes().ALLOWED
    done = set()
    while len(done) < len(allowed):
        ready = {folder for folder in allowed if folder not in done and allowed[folder] - {folder} <= done}
        assert ready, f"these include each other: {sorted(set(allowed) - done)}"
        done |= ready


def test_binary_links_little():
    if "asan" in cloche.binary():
        pytest.skip("a sanitizer build links its runtime")
    out = subprocess.run(["ldd", cloche.binary()], capture_output=True, text=True, check=True).stdout
    linked = {os.path.basename(line.split()[0]) for line in out.splitlines()}
    assert linked <= MAY_LINK


def test_runner_adds_up_both_kinds_of_report(tmp_path, capsys):
    runner = load(TOP / "tests" / "run.py")
    cmocka = tmp_path / "cmocka.xml"
    cmocka.write_text('<testsuites><testsuite name="g"><testcase name="a"/><testcase name="b"><failure>no</failure></testcase>'
                      '<testcase name="c"><skipped/></testcase></testsuite></testsuites>')
    pytest_xml = tmp_path / "pytest.xml"
    pytest_xml.write_text('<testsuites><testsuite><testcase classname="tests.x" name="d"/><testcase classname="tests.x" '
                          'name="e"><skipped message="no kvm"/></testcase></testsuite></testsuites>')
    tally = runner.Tally("some")
    assert runner.read_xml(cmocka, tally, "binary/", {"c": "no root"}) == 3
    assert runner.read_xml(pytest_xml, tally) == 2
    assert (tally.passed, tally.failures, tally.skips) == \
        (2, [("binary/b", "no")], [("binary/c", "no root"), ("x.e", "no kvm")])
    assert runner.report([tally]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 1 failed, 2 skipped"


def test_runner_fails_when_nothing_ran(capsys):
    runner = load(TOP / "tests" / "run.py")
    assert runner.report([runner.Tally("none")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_leftovers_sees_a_process_and_a_file(tmp_path):
    before = cloche.snapshot()
    program = shutil.copy("/bin/sleep", tmp_path / "cloche-left")
    p = subprocess.Popen([program, "60"])
    file = tempfile.NamedTemporaryFile(prefix="cloche-left.")
    left = cloche.leftovers(before, patience=0)
    p.kill()
    p.wait()
    file.close()
    assert any(text.startswith(f"process {p.pid} ") for text in left)
    assert f"file {file.name}" in left
    assert not [text for text in cloche.leftovers(before) if "cloche-left" in text]


def test_leftovers_sees_a_mount_and_a_namespace(root_only):
    before = cloche.snapshot()
    with tempfile.TemporaryDirectory(prefix="clo-left.") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "cloche-left", folder], check=True)
        p = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
        p.stdout.readline()
        left = cloche.leftovers(before, patience=0)
        p.kill()
        p.communicate()
        subprocess.run(["umount", folder], check=True)
    assert any(text.startswith("mount ") and "cloche-left" in text for text in left)
    assert any(text.startswith("net namespace of process") for text in left)


def test_leftovers_sees_a_cgroup(root_only):
    tree = {1: "/sys/fs/cgroup/pids", 2: "/sys/fs/cgroup"}.get(cloche.cgroup_version())
    cloche.need("root", tree is not None, "no cgroup tree is mounted")
    before = cloche.snapshot()
    parent, group = Path(tree, "cloche-left"), Path(tree, "cloche-left", "one")
    parent.mkdir()
    try:
        group.mkdir()
        left = cloche.leftovers(before, patience=0)
        group.rmdir()
    finally:
        parent.rmdir()
    assert f"cgroup {group}" in left and f"cgroup {parent}" not in left


def test_unknown_must_work_name_is_an_error(monkeypatch):
    monkeypatch.setenv("CLOCHE_MUST_WORK", "native,no-such-thing")
    with pytest.raises(SystemExit, match="no-such-thing"):
        cloche.must_work()


def test_missing_capability_fails_where_it_must_work(monkeypatch):
    monkeypatch.setenv("CLOCHE_MUST_WORK", "bwrap")
    with pytest.raises(pytest.fail.Exception, match="bwrap"):
        cloche.need("bwrap", here=False)
    monkeypatch.setenv("CLOCHE_MUST_WORK", "")
    with pytest.raises(pytest.skip.Exception, match="bwrap"):
        cloche.need("bwrap", here=False)


def defs(name):
    """The rows of a .def table: a list of argument lists."""
    text = re.sub(r"/\*.*?\*/", "", (TOP / "src" / "sandbox" / name).read_text(), flags=re.S)
    return [[a.strip() for a in m[1].split(",")] for m in re.finditer(r"^[A-Z]+\((.*)\)$", text, re.M)]


def test_ends_page_has_every_reason_as_the_table_has_it():
    page = (TOP / "docs" / "ends.md").read_text()
    fixed = {"EXIT_OWN": "n", "EXIT_SIGNAL": "128 + n"}
    for _, name, code, status, retryable in defs("reasons.def"):
        rows = [line for line in page.splitlines() if re.match(rf"\| `{name[1:-1]}`", line)]
        assert rows, name
        cells = [c.strip() for c in rows[-1].strip("|").split("|")]
        assert cells[1:3] == [code, fixed.get(status, status)], name
        assert (cells[3] == "yes") == (retryable == "1"), name


def test_links_between_documents_lead_somewhere():
    for page in [*TOP.glob("*.md"), *(TOP / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


# Whose bytes: who parses them. None for WebSocket frames, which are relayed (AP-09), and for zip, which is not taken.
PARSERS = {
    "HTTP requests": "http", "HTTP answers": "client", "requests through the proxy, SOCKS, CONNECT": "egress",
    "answers through the proxy": "egress_answer", "JSON of a run": "spec_json", "bodies of the API": "body", "quotas": "quota",
    "MCP": "mcp", "models' answers": "ask", "tar of a sandbox or a client": "untar", "layers": "image_layer", "configurations of images": "image_config",
    "manifests and indexes": "manifest", "names of images": "reference", "WWW-Authenticate": "challenge", "DNS": "dns",
    "TLS hellos": "hello", "rules of the network": "network", "configuration": "settings", ".env": "envfile", "options": "options",
    "init's reports": "protocol", "init's conversations": "conversation", "cloched's requests": "spawner", "zygotes": "zygote",
    "output": "splitter", "text for a terminal": "escape", "secrets in answers": "redact", "lines of --map": "map_line",
    "certificates of images": "keystore",
}


def test_AP_18_every_parser_of_untrusted_bytes_is_fuzzed():
    """Each has a harness that `make fuzz` builds and a corpus that is replayed, and no harness is forgotten."""
    rows = set(re.findall(r"^  '(\w+)': (?:\[\]|files|body_sources)", (TOP / "tests/fuzz/meson.build").read_text(), re.M))
    assert rows == {p.stem[5:] for p in (TOP / "tests/fuzz").glob("fuzz_*.c")} == set(PARSERS.values())
    for name in sorted(rows):
        assert list((TOP / "tests/fuzz/corpus" / name).iterdir()), f"no corpus of {name}"
