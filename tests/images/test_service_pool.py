# SPDX-License-Identifier: Apache-2.0
"""Prepared sandboxes of images: a run gets one only while its name stands for the image that it was made of."""
import os
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import cloche
import contract
import imagelib
import proc
import pytest
import service as services
from imagelib import DIR, entry
from test_service import HostStore
from test_store import busybox

BASE = f"cloche-test/pool-{os.getpid()}"
A, B, PYTHON = f"{BASE}:a", f"{BASE}:b", f"{BASE}:python"
READ = {"command": ["cat", "/data"]}
pytestmark = pytest.mark.needs("root", "native", "service")


def metric(client, name):
    return float(re.search(rf"^cloche_{name} (\S+)$", client.expect(200, "GET", "/metrics").body.decode(), re.M)[1])


def hits(client):
    return metric(client, "pool_hits_total")


def run(client, image=A, **body):
    return client.expect(200, "POST", "/v1/runs", json={"image": image, **body}, timeout=60).json


def refused(client, image=A, **body):
    client.problem(404, "SANDBOX_IMAGE_MISSING", "POST", "/v1/runs", json={"image": image, **(body or READ)})


def hit(service, image=A, counted="pool_hits_total", **body):
    """The result of such a run that was given a prepared sandbox. Others on this machine may change images too, and then none
    is kept for some seconds."""
    until = time.monotonic() + 60
    while True:
        before = metric(service.root, counted)
        r = run(service.root, image, **(body or READ))
        if metric(service.root, counted) > before:
            return r
        assert time.monotonic() < until, ("none is prepared", service.root.get("/v1/pool"), service.said())
        contract.until(lambda: service.root.get("/v1/pool")["ready"] > 0 or time.monotonic() > until, 20)
        time.sleep(0.1)


def libraries(*programs):
    """Entries of these programs, and of what the dynamic linker loads for them."""
    files = {str(p): p for p in programs}
    for program in programs:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        files.update({name: os.path.realpath(name) for name in re.findall(r"(/\S+) \(0x", listed)})
    return [entry(name.lstrip("/"), Path(real).read_bytes(), mode=0o755) for name, real in sorted(files.items())]


def python_files():
    """The interpreter that runs this test, with its standard library but for tests."""
    top, program = Path(sysconfig.get_path("stdlib")), os.path.realpath(sys.executable)
    kept = [p for p in top.rglob("*") if p.suffix in (".py", ".so") and not {"test", "tests", "idlelib", "lib2to3", "dist-packages"} & set(p.parts)]
    return [*libraries(program), entry("opt/bin/python3", kind=imagelib.LINK, link=program),
            *[entry(str(p).lstrip("/"), p.read_bytes()) for p in sorted(kept)]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Layouts of images that differ by /data, and of one with Python."""
    made = {}
    for name, more in (("first", []), ("second", []), ("python", python_files())):  # uncompressed: quick to make
        made[name] = tmp_path_factory.mktemp("layouts") / name
        imagelib.Layout(made[name]).image("t", [busybox(entry("data", name.encode()), entry("own", BASE.encode()), *libraries("/bin/bash"), *more)],
                                          config={"Env": [f"WHICH={name}", "PATH=/opt/bin:/bin"]}, compress=None)
    return made


@pytest.fixture
def host(folders):
    store = HostStore()
    store.image("import", folders["first"], A)
    yield store
    for name in (A, B, PYTHON):
        store.image("rm", name, check=False)
    store.image("prune")


@pytest.fixture(scope="module")
def service():
    with services.Service({"pool": 4, "pool_floor": 2}) as one:
        yield one


def test_the_second_run_finds_one_prepared(host, service):
    assert hit(service)["stdout"] == "first"
    ids = [hit(service)["sandbox"] for _ in range(6)]
    assert len(set(ids)) == 6


@pytest.mark.parametrize("body", [{"language": "bash", "code": "echo $WHICH $PATH $HOME; pwd; cat; echo $- $0"},
                                  {"language": "bash", "code": "echo $WHICH; id -u; exit 3", "workdir": "/tmp"},
                                  {"command": ["sh", "-c", "env; pwd"], "env": {"WHICH": "mine"}}],
                         ids=["bash", "bash-workdir", "command"])
def test_it_is_as_one_made_for_the_run(host, service, body):
    """The same result as by a service that prepares nothing: the image's environment reached what waited."""
    interpreter = "language" in body
    got = hit(service, counted="pool_interpreter_hits_total" if interpreter else "pool_hits_total", **body)
    with services.Service({"pool": 0}) as fresh:
        wanted = run(fresh.root, **body)
    for key in ("stdout", "stderr", "exit_code", "reason", "enforced"):
        assert got[key] == wanted[key], (key, got[key], wanted[key])
    assert ("mine" if "env" in body else "first") in got["stdout"]


def test_python_of_the_image(host, folders, service):
    """A new interpreter of the image waits, not a child of a zygote of the host's."""
    host.image("import", folders["python"], PYTHON)
    code = "import os, sys; print(os.environ['WHICH'], sys.argv, os.path.exists('/usr/bin/perl'), hash('x'))"
    before = metric(service.root, "pool_zygote_hits_total")
    seen = [hit(service, PYTHON, "pool_interpreter_hits_total", language="python", code=code)["stdout"].rsplit(" ", 1) for _ in range(3)]
    assert {s[0] for s in seen} == {"python ['-'] False"} and len({s[1] for s in seen}) == 3, seen
    assert metric(service.root, "pool_zygote_hits_total") == before


def test_no_such_interpreter(host, service):
    """Nothing waits then, and each run is told what is wrong."""
    for _ in range(3):
        r = run(service.root, language="node", code="1")
        assert r["exit_code"] is None and r["reason"] == "create_failed" and "node" in r["message"], r
        time.sleep(0.3)


def test_an_image_that_comes_anew(host, folders, service):
    """From the end of the import on, the next run sees the new content: also while sandboxes of the old one are prepared."""
    for i in range(6):
        old, new = ("first", "second") if i % 2 == 0 else ("second", "first")
        assert hit(service)["stdout"] == old
        assert hit(service, counted="pool_interpreter_hits_total", language="bash", code="cat /data")["stdout"] == old
        contract.until(lambda: service.root.get("/v1/pool")["ready"] > 2, 20)
        host.image("import", folders[new], A)
        assert run(service.root, **READ)["stdout"] == new
        assert run(service.root, language="bash", code="cat /data; echo -$WHICH")["stdout"] == f"{new}-{new}\n"
    assert hit(service)["stdout"] == "first"


def test_an_image_that_changes_all_the_time(host, folders, service):
    """A client that never stops asking, and a name that moves: no run ends with what was gone before it began."""
    until, last = time.monotonic() + 12, "first"
    while time.monotonic() < until:
        for _ in range(60):
            assert run(service.root, **READ)["stdout"] == last
        last = "second" if last == "first" else "first"
        host.image("import", folders[last], A)


def test_an_image_that_is_removed(host, folders, service):
    """Prepared ones do not hold it; then a run is refused as without a pool; and it can come back."""
    assert hit(service)["stdout"] == "first"
    contract.until(lambda: service.root.get("/v1/pool")["ready"] > 0, 20)
    began = time.monotonic()
    host.image("rm", A)
    assert time.monotonic() - began < 10
    for _ in range(3):
        refused(service.root)
        refused(service.root, language="bash", code="echo here")
    time.sleep(2)
    refused(service.root)
    host.image("import", folders["second"], A)
    assert run(service.root, **READ)["stdout"] == "second"
    assert hit(service)["stdout"] == "second"


def test_a_name_that_goes_and_an_image_that_stays(host, folders, service):
    host.image("import", folders["first"], B)
    by_id = host.record(A)["id"]
    assert hit(service)["stdout"] == hit(service, by_id)["stdout"] == "first"
    host.image("rm", A)
    refused(service.root)
    assert run(service.root, by_id, **READ)["stdout"] == run(service.root, B, **READ)["stdout"] == "first"
    host.image("rm", B)
    refused(service.root, by_id)
    refused(service.root, B)


def test_prune_takes_what_is_only_prepared(host, folders, service):
    assert hit(service)["stdout"] == "first"
    old = host.record(A)["id"]
    host.image("import", folders["second"], A)
    host.image("prune")
    assert host.image("inspect", old, check=False).returncode == 1


def test_what_runs_stays(host, service):
    assert hit(service)["stdout"] == "first"
    box = service.root.box(image=A)
    assert "a sandbox runs it" in host.image("rm", A, check=False).err
    assert run(service.root, **READ)["stdout"] == "first"
    box.kill()
    host.image("rm", A)
    refused(service.root)


def test_two_images_are_two_kinds(host, folders, service):
    host.image("import", folders["second"], B)
    assert hit(service, memory="77m", **READ)["stdout"] == "first"
    kinds = service.root.get("/v1/pool")["kinds"]
    assert run(service.root, B, memory="77m", **READ)["stdout"] == "second"
    assert service.root.get("/v1/pool")["kinds"] == kinds + 1
    for _ in range(3):
        assert (hit(service)["stdout"], hit(service, B)["stdout"]) == ("first", "second")


def test_pull_or_not_is_one_kind(host, service):
    """What is there needs no pull."""
    assert hit(service)["stdout"] == "first"
    kinds = service.root.get("/v1/pool")["kinds"]
    assert hit(service, pull="never", **READ)["stdout"] == "first"
    assert service.root.get("/v1/pool")["kinds"] == kinds


def test_policy(host):
    """Its images hold as ever, also those of a configuration that was changed just now: the spawner reads it anew."""
    with services.Service({"pool": 4, "pool_floor": 2}, policy={"images": ["host", f"docker.io/{A}"]}) as one:
        assert hit(one)["stdout"] == "first"
        one.root.problem(403, "FORBIDDEN", "POST", "/v1/runs", json={"image": B, **READ})
        contract.until(lambda: one.root.get("/v1/pool")["ready"] > 0, 20)
        one.config.write_text(one.config.read_text().replace(f"docker.io/{A}", f"docker.io/{B}"))
        one.root.problem(403, "FORBIDDEN", "POST", "/v1/runs", json={"image": A, **READ})


def test_nothing_is_left(host):
    """With the service go its prepared ones, and nothing holds the image then."""
    with services.Service({"pool": 4, "pool_floor": 4}) as one:
        hit(one)
        hit(one, counted="pool_interpreter_hits_total", language="bash", code="cat /data")
        contract.until(lambda: one.root.get("/v1/pool")["ready"] > 3, 20)
    began = time.monotonic()
    host.image("rm", A)
    assert time.monotonic() - began < 5


def test_cloched_can_only_look(host, service):
    """Its descriptors of the store's folders lead it nowhere: they are root's alone."""
    [pid] = [p for p in service.processes() if proc.executable(p) == "cloched" and
             any(path.startswith("/var/lib/cloche/images") for path in cloche.fds(p).values())]
    uid = os.stat(f"/proc/{pid}/fdinfo").st_uid or int(re.search(r"Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
    for name in (".", "refs", "images"):
        fd = os.open(f"/var/lib/cloche/images/{name}", os.O_PATH | os.O_DIRECTORY)
        found = [Path(f"/proc/{pid}/fdinfo/{f}").read_text() for f in os.listdir(f"/proc/{pid}/fd")
                 if os.path.realpath(f"/proc/{pid}/fd/{f}") == os.path.realpath(f"/var/lib/cloche/images/{name}")]
        assert len(found) == 1 and int(re.search(r"flags:\s+(\d+)", found[0])[1], 8) & os.O_PATH
        child = subprocess.run(["/usr/bin/python3", "-c", f"import os\nos.fstat({fd})\n"
                                f"for f in (lambda: os.listdir({fd}), lambda: os.fchdir({fd}), lambda: os.open('.', 0, dir_fd={fd}), "
                                f"lambda: os.stat('refs', dir_fd={fd}), lambda: os.chmod('/proc/self/fd/{fd}', 0o777)):\n"
                                "    try:\n        f()\n    except OSError:\n        continue\n    raise SystemExit('it could')\n"],
                               pass_fds=[fd], user=uid, group=uid, extra_groups=[], cwd="/", capture_output=True, text=True, check=False)
        os.close(fd)
        assert child.returncode == 0, child.stderr
