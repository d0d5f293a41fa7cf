# SPDX-License-Identifier: Apache-2.0
"""README's examples, run as they stand: what follows a `$ ` line is its output, byte for byte."""
import re
import subprocess
from pathlib import Path

import cloche
import provider
import pytest
import service as services
from ask import FIBONACCI

pytestmark = pytest.mark.needs("native", "root")

TOP = Path(__file__).resolve().parents[2]


def examples(service=False):
    """[(command, expected output)] of every console block, in order: of the section "As a service", or of all before it."""
    found = []
    alone, _, served = (TOP / "README.md").read_text().partition("## As a service\n")
    for block in re.findall(r"^```console\n(.*?)^```$", served if service else alone, re.S | re.M):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append([line[2:], ""])
            elif line.startswith("> "):
                found[-1][0] += line[2:]
            else:
                found[-1][1] += line
    return found


@pytest.fixture
def shell(tmp_path):
    """Runs a command of the README with `cloche` in PATH, in one folder for all."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cloche").symlink_to(cloche.binary())
    env = {"PATH": f"{tmp_path}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8",
           "SECRET": "of the caller"}

    def run(command, **more):
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env={**env, **more}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return done.stdout.decode()
    return run


def test_there_are_ten_examples():
    assert len([c for c, _ in examples() if "cloche " in c]) >= 10


def test_examples_print_what_the_readme_says(shell):
    model = provider.anthropic  # its part is replayed, the code it writes is run
    for command, expected in examples():
        with provider.Provider(model.turn("I compute it.", [("c1", "run_python", FIBONACCI)]), model.turn("The 30th Fibonacci number is 832040.")) as p:
            assert shell(command, BASE_URL=p.url, ANTHROPIC_API_KEY="scripted") == expected, command
        assert len(p.asked) == (2 if "cloche ask" in command else 0) and all("832040" in q.body.decode() for q in p.asked[1:])


def test_the_service_prints_what_the_readme_says(tmp_path):
    """One shell for all of the section, as a reader has."""
    cloche.need("service")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cloche").symlink_to(cloche.binary())
    rows = examples(service=True)
    assert len(rows) >= 6
    script = "".join(f"{command}\necho '-- end --'\n" for command, _ in rows)
    with services.Service() as s:
        env = {"PATH": f"{tmp_path}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8", "CLOCHE_SOCKET": s.sock}
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120)
    printed = done.stdout.decode().split("-- end --\n")
    for (command, expected), text in zip(rows, printed):
        assert text == expected, command
