# SPDX-License-Identifier: Apache-2.0
"""docs/agents.md as it stands: its configurations start a server that answers, its programs and commands print what they should."""
import json
import os
import re
import subprocess
import tomllib

import clients
import cloche
import pytest
from mcp_stdio import Mcp

pytestmark = pytest.mark.needs("native", "python")
TEXT = (cloche.TOP / "docs" / "agents.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.S | re.M)


@pytest.fixture
def env(tmp_path):
    (tmp_path / "cloche").symlink_to(cloche.binary())
    return cloche.environment({"CLOCHE_DIRECT": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"})


def test_every_configuration_starts_cloche_mcp():
    servers = [next(iter(next(iter(json.loads(b).values())).items())) for b in blocks("json")]
    servers += [next(iter(tomllib.loads(b)["mcp_servers"].items())) for b in blocks("toml")]
    assert len(servers) == 6
    for name, server in servers:
        words = [os.path.basename(server["command"]), *server["args"]]
        assert name == "cloche" and (words == ["cloche", "mcp"] or (words[0] == "ssh" and words[-2:] == ["cloche", "mcp"])), words


def test_every_command_line_of_ours_is_one_that_works():
    for options in ("--session", "--memory 512m --timeout 60s"):
        assert f"cloche mcp {options}" in TEXT
        with Mcp(options.split(), {"CLOCHE_DIRECT": "1"}) as m:
            m.hello()


def test_console_examples(env, tmp_path):
    found = []
    for line in "".join(blocks("console")).splitlines(keepends=True):
        if line.startswith("$ "):
            found.append([line[2:], ""])
        else:
            found[-1][1] += line
    assert len(found) == 2
    for command, expected in found:
        done = subprocess.run(["bash", "-c", command], env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.stdout.decode() == expected, command


def test_the_python_program(env, tmp_path):
    (program,) = blocks("python")
    done = subprocess.run([clients.python(), "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "42\n\n", done


@pytest.mark.needs("node")
def test_the_javascript_program(env, tmp_path):
    (program,) = blocks("js")
    script = os.path.join(clients.node(), "doc.mjs")
    with open(script, "w") as f:
        f.write(program)
    done = subprocess.run(["node", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "42\n\n", done
    os.unlink(script)


def test_the_table_of_tools_is_the_servers():
    with Mcp(env={"CLOCHE_DIRECT": "1"}) as m:
        m.hello()
        listed = {t["name"]: sorted(t["inputSchema"]["properties"]) for t in m.result("tools/list")["tools"]}
    told = {}
    for names, arguments in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|([^|]*)\|", TEXT.partition("## What the tools do")[2], re.M):
        for name in re.findall(r"`(\w+)`", names):
            told[name] = sorted(re.findall(r"`(\w+)`", arguments))
    assert told == listed
