# SPDX-License-Identifier: Apache-2.0
"""Sandboxes whose root is an image."""
import grp
import json
import os
import pwd
import subprocess

import cloche
import pytest
from imagelib import DIR, LINK, Store, entry, tar
from test_store import busybox

CONFIG = {"Env": ["PATH=/bin:/opt/bin", "FOO=bar", "HOME=/root", "LANG=de_DE"], "WorkingDir": "/srv/app/",
          "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo entry $FOO"], "User": "1234:99"}


@pytest.fixture
def image(store, layout):
    layout.image("t", [busybox(entry("srv", kind=DIR), entry("srv/app", kind=DIR), entry("srv/app/secret", b"root only", mode=0o600),
                               entry("srv/app/data", b"data"), entry("owned", b"x", uid=1234, mode=0o600))], config=CONFIG)
    store.image("import", layout.path, "t:1")
    return store


def test_configuration(image):
    assert image.call("run", "--image", "t:1").out == "entry bar\n"
    env = dict(line.split("=", 1) for line in image.call("run", "--image", "t:1", "--", "env").out.splitlines())
    assert env["FOO"] == "bar" and env["PATH"] == "/bin:/opt/bin" and env["LANG"] == "de_DE" and env["HOME"] == "/tmp"
    out = image.call("run", "--image", "t:1", "-e", "FOO=mine", "-e", "LANG=C.UTF-8", "--", "env").out.splitlines()
    assert "FOO=mine" in out and "LANG=C.UTF-8" in out
    assert image.call("run", "--image", "t:1", "--", "pwd").out == "/srv/app\n"
    assert image.call("run", "--image", "t:1", "-w", "/tmp", "--", "pwd").out == "/tmp\n"
    assert image.call("run", "--image", "t:1", "--", "id", "-u").out == "65534\n", "User is the operator's to allow"
    assert image.call("bash", "--image", "t:1", "-c", "pwd", check=False).returncode == 127


def test_without_a_command(store, layout):
    layout.image("t", [busybox()])
    store.image("import", layout.path, "t:1")
    r = store.call("run", "--image", "t:1", check=False)
    assert r.returncode == 2 and "none of its own" in r.err


def test_no_such_image(store):
    for name in ("nosuch", "nosuch:1", "registry.lan:5000/a/b", "nosuch@sha256:" + "0" * 64, "abcdef012345"):
        r = store.call("run", "--pull", "never", "--image", name, "--", "true", check=False)
        assert r.returncode == 125 and "no such image" in r.err, r.err
    assert store.call("run", "--image", "../x", "--", "true", check=False).returncode == 2


def test_no_such_interpreter(image):
    for verb, program in (("python", "python3"), ("node", "node"), ("bash", "bash")):
        r = image.call(verb, "--image", "t:1", "-c", "1", check=False)
        assert r.returncode == 127 and program in r.err and "t:1" in r.err, r.err


def test_by_id_and_digest(image):
    record = image.record("t:1")
    for name in (record["id"], record["id"][7:], record["id"][7:19], "docker.io/library/t:1", f"t@{record['manifest']}"):
        assert image.call("run", "--image", name, "--", "cat", "data").out == "data"
    assert "no such image" in image.call("run", "--pull", "never", "--image", f"other@{record['manifest']}", "--", "true", check=False).err


def test_what_the_user_may(image):
    """Files of root in the image are of nobody's root outside, and of root inside: not the user's."""
    assert image.call("run", "--image", "t:1", "--", "cat", "secret", check=False).returncode == 1
    r = image.call("run", "--image", "t:1", "--", "sh", "-c", "ls -ln /srv/app/data; echo x > /srv/app/data; echo x > /bin/new; echo x > /new",
                   check=False)
    assert " 0        0 " in r.out and r.err.count("Read-only file system") == 3, (r.out, r.err)
    r = image.call("run", "--image", "t:1", "--user", "1234", "--", "cat", "/owned")
    assert r.out == "x"


def test_writable_places_and_mounts(image, tmp_path):
    (tmp_path / "v").mkdir()
    (tmp_path / "v/f").write_text("vol")
    r = image.call("run", "--image", "t:1", "--tmpfs", "/srv/new:size=1m", "-v", f"{tmp_path}/v:/srv/app/vol:ro", "--", "sh", "-c",
                   "echo 1 >/tmp/a; echo 2 >/workspace/b; echo 3 >/srv/new/c; cat /tmp/a /workspace/b /srv/new/c /srv/app/vol/f data")
    assert r.out == "1\n2\n3\nvoldata"


def test_policy(image, layout):
    """The operator's list of images; ids and digests do not get around it."""
    record = image.record("t:1")
    image.image("import", layout.path, "lib/ok:1")

    def run(policy, name, *more):
        image.configure(policy)
        r = image.call("run", "--pull", "never", "--image", name, *more, "--", "id", "-u", check=False)
        return r.returncode, r.out, r.err

    policy = "policy:\n  images: [\"docker.io/lib/*\"]\n"
    assert run(policy, "lib/ok:1")[:2] == (0, "65534\n")
    for name in ("t:1", "host", record["id"], record["id"][7:], record["id"][7:19], f"t@{record['manifest']}"):
        status, _, err = run(policy, name)
        assert status == 125 and "policy does not allow this image" in err, (name, err)
    assert run(policy, f"lib/none@{record['manifest']}")[0] == 125
    assert run("policy:\n  images: [\"*\"]\n", "t:1")[0] == 0
    assert run("policy:\n  images: [\"t:*\"]\n", "docker.io/library/t:1")[0] == 0
    assert run("policy:\n  image_user: \"true\"\n", "t:1")[:2] == (0, "1234\n")
    assert run("policy:\n  image_user: \"true\"\n", "t:1", "--user", "77")[:2] == (0, "77\n")
    assert "images must be a list" in run("policy:\n  images: x\n", "t:1")[2]


def test_etc_and_root_like_the_host_image(image):
    r = image.call("run", "--image", "t:1", "--hostname", "bell", "--", "sh", "-c", "cat /etc/hosts; cat /proc/sys/kernel/hostname; ls -a /")
    assert "127.0.0.1\tlocalhost bell" in r.out


def test_result(image):
    r = image.call("run", "--json", "--image", "t:1", "--", "cat", "data")
    j = json.loads(r.out)
    assert j["ok"] and j["stdout"] == "data" and j["enforced"]["rootfs"] == "read-only overlay"
    assert j["enforced"]["user_namespace"] and j["enforced"]["landlock"]


def test_mounts_tell_nothing_of_the_host(image):
    out = image.call("run", "--image", "t:1", "--", "cat", "/proc/self/mountinfo").out
    assert str(image.state) not in out and "/var/lib" not in out


def test_start_is_as_fast_as_with_the_host_image(image):
    """Printed, and a generous bound: the issue's 0.5 ms is measured on a quiet machine (docs/speed.md)."""
    argv = image.argv([])[:-1] + ["python3", "-c", """
import os, statistics, subprocess, sys, time
def once(*args):
    begin = time.perf_counter()
    subprocess.run([sys.argv[1], "run", *args, "--", "true"], check=True)
    return (time.perf_counter() - begin) * 1e3
both = [(once(), once("--image", "t:1")) for _ in range(60)]
print(statistics.median(b for a, b in both) - statistics.median(a for a, b in both))
""", image.binary]
    r = subprocess.run(argv, stdout=subprocess.PIPE, check=True, env={**os.environ, "CLOCHE_DIRECT": "1"})
    more = float(r.stdout)
    print(f"\nimage: {more:+.2f} ms over the host image")
    assert more < 5, "something is done per start that should be done per import"


OPENED = ("--network", "allow", "--allow", "GET https://a.test/x", "--timeout", "30s")
REDHAT = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
DEBIAN = "etc/ssl/certs/ca-certificates.crt"


def folders(path):
    parts = path.split("/")[:-1]
    return [entry("/".join(parts[:i + 1]), kind=DIR) for i in range(len(parts))]


@pytest.mark.parametrize("path", [DEBIAN, REDHAT])
def test_authority_beside_the_images_own(store, layout, path):
    """Wherever the distribution has its bundle, and by the links that lead there."""
    link = entry("etc/pki/tls/certs/ca-bundle.crt", kind=LINK, link="/" + path)
    layout.image("t", [busybox(*{e[0].name: e for e in folders(path) + folders(link[0].name)}.values(), entry(path, b"of the image\n"), link)])
    store.image("import", layout.path, "t:1")
    out = store.call("run", *OPENED, "--image", "t:1", "--", "sh", "-c", f"cat /{path} /etc/pki/tls/certs/ca-bundle.crt; echo %%; "
                     "cat /etc/cloche/authority.pem; echo %%; cat /etc/resolv.conf; echo %%; echo $SSL_CERT_FILE; echo x >>/etc/cloche/authority.pem",
                     check=False).out.split("%%\n")
    assert out[1].startswith("-----BEGIN CERTIFICATE-----") and out[0] == ("of the image\n\n" + out[1]) * 2, out
    assert out[2].startswith("nameserver 127.0.0.1\n") and out[3] == "/etc/cloche/ca-bundle.pem\n"
    assert store.call("run", "--image", "t:1", "--", "cat", "/" + path, "/etc/resolv.conf").out == "of the image\n"


@pytest.mark.parametrize("target", ["/proc/kallsyms", "/proc/self/environ", "/dev/zero", "/../../../../etc/passwd"])
def test_bundle_that_leads_elsewhere(store, layout, target):
    """Nothing is read through it: the sandbox gets this machine's certificates."""
    layout.image("t", [busybox(*folders(DEBIAN), entry(DEBIAN, kind=LINK, link=target))])
    store.image("import", layout.path, "t:1")
    out = store.call("run", *OPENED, "--image", "t:1", "--", "sh", "-c", "cat /etc/cloche/ca-bundle.pem | head -c 1000; echo; ls -la /etc/cloche").out
    assert out.startswith("-----BEGIN CERTIFICATE-----") and "root:x" not in out, out


USER = "cloche-images"


@pytest.fixture
def uid():
    """An ordinary user with subordinate ids, for as long as the test."""
    cloche.need("root")
    cloche.need("idmap")
    number = next(n for n in range(20000, 30000) if n not in {p.pw_uid for p in pwd.getpwall()} | {g.gr_gid for g in grp.getgrall()})
    subprocess.run(["/usr/sbin/groupadd", "--gid", str(number), USER], check=True)
    subprocess.run(["/usr/sbin/useradd", "--no-create-home", "--uid", str(number), "--gid", str(number), "--key", "SUB_UID_COUNT=0",
                    "--key", "SUB_GID_COUNT=0", USER], check=True)
    subprocess.run(["/usr/sbin/usermod", "--add-subuids", "1879310336-1879375871", "--add-subgids", "1879310336-1879375871", USER], check=True)
    yield number
    subprocess.run(["/usr/sbin/userdel", USER], check=True, stderr=subprocess.DEVNULL)


def test_rootless(tmp_path, layout, uid):
    """An ordinary user's store: no rights are needed to import; files have one owner; a sandbox runs from it."""
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, uid, uid)
    cloche.open_the_way(tmp_path)
    store = Store(state, uid)
    layout.image("t", [busybox(entry("d", kind=DIR, mode=0o555), entry("d/f", b"x", uid=7), entry("z", kind=DIR, mode=0o700), entry("z/f", b"x"),
                               entry("opq", kind=DIR), entry("opq/old", b"x"), entry("gone", b"x")),
                       tar(entry("opq", kind=DIR), entry("opq/.wh..wh..opq", b""), entry("opq/new", b"y"), entry(".wh.gone", b""))])
    store.image("import", layout.path, "t:1")
    assert (store.layer("t:1", 0) / "d").stat().st_mode & 0o777 == 0o555 and (store.layer("t:1", 0) / "d/f").stat().st_uid == uid
    r = store.call("run", "--best-effort", "--image", "t:1", "--", "sh", "-c", "ls /opq; cat /d/f; ls /; id -u; ls /z", check=False)
    assert r.out.split("\n")[0] == "new" and "gone" not in r.out and "65534" in r.out and "Permission denied" in r.err, (r.out, r.err)
    store.image("rm", "t:1")
    assert store.files() == []
