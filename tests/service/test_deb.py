# SPDX-License-Identifier: Apache-2.0
"""The Debian package, installed, upgraded, removed and purged in a fresh system without an init system. What needs one is
in tests/vm/test_deb_systemd.py. Also: the configuration it ships says what the programs say."""
import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import cloche
import debian
import pytest

SHIPPED = cloche.TOP / "packaging" / "debian" / "cloche.yaml"
PROGRAMS = ["cloched", "cloche-serve", "cloche-spawner", "cloche-yaml"]


@pytest.fixture(scope="module")
def deb():
    cloche.need("debootstrap", debian.missing() is None, debian.missing())
    return debian.package()


@pytest.fixture
def root(deb):
    with debian.fresh(deb) as folder:
        yield folder


def install(root, deb, *options):
    shutil.copy(deb, root / "tmp" / "cloche.deb")
    done = debian.inside(root, "dpkg", *options, "-i", "/tmp/cloche.deb")
    (root / "tmp" / "cloche.deb").unlink()
    return done.stdout


def ids(root, name):
    """{name: numeric ids of the line} of the system's passwd or group."""
    lines = (line.split(":") for line in (root / "etc" / name).read_text().splitlines())
    return {line[0]: line for line in lines}


def files(root):
    """Everything but what the package manager, logs and caches keep for themselves."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in folders + names:
            path = Path(folder) / name
            relative = str(path.relative_to(root))
            if not relative.startswith(("var/lib/dpkg", "var/log", "var/cache", "tmp/", "proc/")):
                found[relative] = stat.filemode(path.lstat().st_mode)
    return found


# ------------------------------------------------------------------------------------------------ the configuration


def sections(text):
    """{section: {key: value as text}} of the shipped file with everything switched on, and that YAML."""
    lines, found, section = [], {}, None
    for line in text.splitlines():
        top = re.fullmatch(r"(?:# )?(service|defaults|policy|uid_range|registries|resolve|upstream_ca|credentials):(| [0-9:]+| /\S+)", line)
        key = re.fullmatch(r"  (?:# )?(  )?([a-z_]+|[a-z.]+\.[a-z]+(?::\d+)?):(?: (\S.*))?", line)
        if top:
            section = top[1]
            found[section] = {} if not top[2] else top[2].strip()
            lines.append(line.removeprefix("# "))
        # an explanation may hold a colon, too: a key's value is one word or in brackets
        elif key and section and re.fullmatch(r"\S*|\[.*\]|\{.*\}", key[3] or ""):
            if not key[1]:
                found[section][key[2]] = key[3]
            lines.append("  " + line[2:].removeprefix("# "))
    return found, "\n".join(lines) + "\n"


def serve_keys():
    program = Path(cloche.binary()).parent / "cloche-serve"
    text = subprocess.run([program, "--keys"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return dict(re.findall(r"(?m)^  ([a-z_]+) +(?:(\S+) +)?(?=\S)", text))


def test_configuration_names_every_key_of_the_service():
    found, _ = sections(SHIPPED.read_text())
    keys = serve_keys()
    assert set(found["service"]) == set(keys)
    rows = re.findall(r'(?m)^\t(?:ROW|ROW_US|ROW_BYTES)\((\w+),(?: \w+,)? (NULL|"([^"]*)")',
                      (cloche.TOP / "src/service/config.c").read_text())
    assert len(rows) == len(keys)
    for key, has, default in rows:
        if has != "NULL" and default:
            assert found["service"][key] == default, key


def test_configuration_names_every_default():
    found, _ = sections(SHIPPED.read_text())
    shown = cloche.run(["config", "show", "--json"], json=False)
    rows = json.loads(shown.stdout)
    rows = rows.get("settings", rows)
    names = {(r if isinstance(r, str) else r["name"]).replace("-", "_") for r in rows} - {"service"}  # which one answers
    assert set(found["defaults"]) == names
    limits = {"memory", "memory_swap", "cpus", "pids_limit", "timeout", "cpu_time", "idle_timeout", "max_output",
              "network_bytes", "network_connections"}
    assert set(found["registries"]) == {"docker.io", "registry.example.org:5000"}
    assert set(found["policy"]) == limits | {"best_effort", "volume_roots", "images", "image_user", "network", "network_allow",
                                           "network_deny", "network_private"}
    assert set(found["resolve"]) == {"registry.corp"} and set(found["credentials"]) == {"github"}
    source = (cloche.TOP / "src/sandbox/options.c").read_text()
    assert {n.replace("-", "_") for n in re.findall(r'\{"([a-z-]+)"[^}]*?amount_\w+', source)} == limits


@pytest.mark.parametrize("all_on", [False, True])
def test_configuration_is_accepted(tmp_path, all_on):
    """As shipped, and with every key switched on, where a key that does not exist would be refused."""
    text = SHIPPED.read_text()
    path = tmp_path / "cloche.yaml"
    path.write_text((sections(text)[1] if all_on else text).replace("socket_group: cloche", "socket_group: nogroup"))
    done = subprocess.run([cloche.binary(), "serve", "--check", "--config", path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if all_on:
        done.stdout = done.stdout.replace("service: user: there is no user cloche", ": ok")  # read to its end
    assert ": ok" in done.stdout, done.stdout


def test_configuration_with_a_wrong_key_is_refused(tmp_path):
    path = tmp_path / "cloche.yaml"
    path.write_text(SHIPPED.read_text().replace("# listen:", "listn:"))
    done = subprocess.run([cloche.binary(), "serve", "--check", "--config", path], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "service: unknown key listn" in done.stderr


def test_the_group_of_cloched_is_not_for_people(tmp_path):
    """Its members could open control sockets of sandboxes, past the service."""
    cloche.need("root")
    path = tmp_path / "cloche.yaml"
    path.write_text(f"service: {{user: nobody, socket_group: nogroup, runtime_dir: {tmp_path}/run, "
                    f"state_dir: {tmp_path}/state, socket: {tmp_path}/run/s}}\n")
    done = subprocess.run([cloche.binary(), "serve", "--config", path], stderr=subprocess.PIPE, text=True, timeout=20)
    assert done.returncode == 1 and "nogroup is the group of cloched's user" in done.stderr


# ------------------------------------------------------------------------------------------------------ the package


def test_lintian(deb, tmp_path):
    cloche.need("lintian", shutil.which("lintian") is not None, "no lintian")
    done = subprocess.run(["lintian", "--fail-on", "error,warning", deb], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, timeout=120, env={**os.environ, "TMPDIR": str(tmp_path)})  # it leaves files there
    assert done.returncode == 0, done.stdout


def test_install(root, deb):
    install(root, deb)
    version = debian.field(deb, "Version")
    assert debian.inside(root, "cloche", "--version").stdout.split()[-1] == version
    # every program finds its libraries: the dependencies are complete
    for name in PROGRAMS:
        assert "not found" not in debian.inside(root, "ldd", f"/usr/libexec/cloche/{name}").stdout
    user, groups = ids(root, "passwd")["cloche"], ids(root, "group")
    assert user[6] == "/usr/sbin/nologin" and user[5] == "/nonexistent"
    assert user[3] == groups["cloched"][2] != groups["cloche"][2]
    assert groups["cloched"][3] == groups["cloche"][3] == ""
    assert (root / "etc/shadow").read_text().split("cloche:")[1][0] in "!*"
    listed = debian.inside(root, "dpkg", "-L", "cloche").stdout.split()
    for path in listed[1:]:
        s = (root / path.lstrip("/")).lstat()
        if stat.S_ISLNK(s.st_mode):
            continue
        wanted = {"/var/lib/cloche": 0o711}.get(path, 0o755 if stat.S_ISDIR(s.st_mode) or path.startswith(
            ("/usr/bin/", "/usr/libexec/cloche/")) else 0o644)
        assert (s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)) == (0, 0, wanted), path
    for path in ["/usr/bin/cloche", *(f"/usr/libexec/cloche/{p}" for p in PROGRAMS), "/usr/include/cloche/cloche.h",
                 "/usr/lib/python3/dist-packages/cloche.py", "/usr/share/man/man1/cloche.1.gz", "/usr/share/cloche/openapi.json",
                 "/usr/share/bash-completion/completions/cloche.bash", "/usr/share/doc/cloche/api.md",
                 "/usr/lib/systemd/system/cloche.service", "/usr/lib/systemd/user/cloche.service", "/etc/cloche/cloche.yaml"]:
        assert path in listed
    assert debian.inside(root, "dpkg", "--verify", "cloche").stdout == ""
    assert ": ok" in debian.inside(root, "cloche", "serve", "--check").stdout
    assert debian.inside(root, "python3", "-c", "import cloche; print(cloche.run_python.__name__)").stdout == "run_python\n"
    link = root / "etc/systemd/system/multi-user.target.wants/cloche.service"
    assert os.readlink(link).endswith("/lib/systemd/system/cloche.service")


def test_unit_is_accepted_by_systemd(root, deb):
    """Every directive is known, in the right section, with a value that is understood."""
    install(root, deb)
    for unit in ("system", "user"):
        done = debian.inside(root, "systemd-analyze", *(["--user"] if unit == "user" else []), "--man=no", "verify",
                             f"/usr/lib/systemd/{unit}/cloche.service", check=False)
        wrong = [line for line in done.stdout.splitlines() if "cloche.service" in line]
        assert not wrong, done.stdout


def test_upgrade_keeps_an_edited_configuration(root, deb, tmp_path):
    install(root, deb)
    config = root / "etc/cloche/cloche.yaml"
    edited = config.read_text().replace("# defaults:", "defaults:").replace("  # timeout: 5s", "  timeout: 7s", 1)
    config.write_text(edited)
    before = ids(root, "passwd")["cloche"], ids(root, "group")["cloche"], ids(root, "group")["cloched"]

    def change(tree):
        with open(tree / "etc/cloche/cloche.yaml", "a") as f:
            f.write("# new in this version\n")

    newer = debian.repack(deb, tmp_path, "99.1", change)
    install(root, newer, "--force-confdef", "--force-confold")
    assert config.read_text() == edited
    assert (root / "etc/cloche/cloche.yaml.dpkg-dist").read_text().endswith("# new in this version\n")
    after = ids(root, "passwd")["cloche"], ids(root, "group")["cloche"], ids(root, "group")["cloched"]
    assert after == before
    timeout = [line.split() for line in debian.inside(root, "cloche", "config", "show").stdout.splitlines()
               if line.startswith("timeout ")]
    assert timeout == [["timeout", "file", "7s"]]


def test_upgrade_renews_a_configuration_nobody_edited(root, deb, tmp_path):
    def change(tree):
        with open(tree / "etc/cloche/cloche.yaml", "a") as f:
            f.write("# new in this version\n")

    install(root, deb)
    install(root, debian.repack(deb, tmp_path, "99.1", change))
    assert (root / "etc/cloche/cloche.yaml").read_text().endswith("# new in this version\n")


def test_remove_keeps_purge_takes(root, deb):
    before, users, groups = files(root), ids(root, "passwd"), ids(root, "group")
    install(root, deb)
    for path in ("var/lib/cloche/service/state.db", "run/cloche/slots/0", "etc/cloche/tls.pem"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("data")
    debian.inside(root, "dpkg", "-r", "cloche")
    left = files(root)
    assert "usr/bin/cloche" not in left and "usr/libexec/cloche" not in left
    assert {"var/lib/cloche/service/state.db", "etc/cloche/cloche.yaml", "etc/cloche/tls.pem"} <= set(left)
    assert "cloche" in ids(root, "passwd")
    debian.inside(root, "dpkg", "-P", "cloche")
    after = files(root)
    # accounts have backups and systemd's helper a folder of its own: none of them names cloche in its path
    new = {p for p in set(after) - set(before) if not re.fullmatch(r"etc/(passwd|group|g?shadow|subuid|subgid)-?", p)}
    assert new <= {"var/lib/systemd/deb-systemd-helper-enabled", "var/lib/systemd/deb-systemd-helper-masked",
                   "var/lib/systemd/deb-systemd-helper-enabled/multi-user.target.wants"}, new
    assert {p for p in before if after.get(p) != before[p]} == set()
    assert (ids(root, "passwd"), ids(root, "group")) == (users, groups)
