# SPDX-License-Identifier: Apache-2.0
"""docs/config.md names every key of `service` with its default, as the program has them (`cloche-serve --keys`)."""
import re
import subprocess
from pathlib import Path

import cloche

PAGE = (cloche.TOP / "docs" / "config.md").read_text()


def keys():
    """{key: default} of the program. A line is two blanks, the key, the default or nothing, the help: columns 22 and 33."""
    out = subprocess.run([Path(cloche.binary()).parent / "cloche-serve", "--keys"], capture_output=True, text=True, check=True).stdout
    return {line[2:22].strip(): line[23:33].strip() for line in out.splitlines() if line.startswith("  ")}


def documented():
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.M))


def test_every_key_is_documented_and_no_other():
    assert len(keys()) >= 20
    assert list(documented()) == list(keys()), "the same keys in the same order"


def test_defaults_are_the_programs():
    """Where the program has a fixed one; paths, and what a sentence explains, have none there."""
    page = documented()
    assert {k: page[k] for k, default in keys().items() if default} == {k: f"`{d}`" for k, d in keys().items() if d}


def test_the_example_is_accepted(tmp_path):
    block = re.search(r"^```yaml\n(service:\n.*?)^```$", PAGE, re.S | re.M)[1].replace("  socket_group: agents\n", "")
    (tmp_path / "c.yaml").write_text(block)
    done = subprocess.run([cloche.binary(), "serve", "--check", "--config", tmp_path / "c.yaml"], capture_output=True, text=True,
                          env=cloche.environment())
    assert done.returncode == 0 and "ok" in done.stdout, done
