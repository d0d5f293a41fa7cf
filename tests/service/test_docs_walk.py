# SPDX-License-Identifier: Apache-2.0
"""docs/api-walk.md by copy and paste: its blocks in one bash, in order, each has to print what stands below it.

`…` in the page matches anything within one line; all other characters are meant as they stand. To see what is printed now:

    CLOCHE_SHOW=1 /usr/bin/python3 -m pytest -s tests/service/test_docs_walk.py
"""
import json
import os
import re
import shutil
import subprocess

import cloche
import pytest
import service as services

pytestmark = pytest.mark.needs("native", "root", "service")
PAGE = cloche.TOP / "docs" / "api-walk.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```\n```text\n(.*?)^```$", re.S | re.M)
END = "-- end of block --"


def blocks():
    """[(commands, what they print)]."""
    return BLOCK.findall(PAGE.read_text())


def pattern(text):
    """The regular expression of a documented output."""
    return re.escape(text).replace("…", "[^\n]*?")


def printed(s, folder):
    """What each block prints, standard error included."""
    script = "".join(f"{commands}\necho; echo '{END}'\n" for commands, _ in blocks())
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "CLOCHE_SOCKET": s.sock,
           "CLOCHE_TCP": f"http://127.0.0.1:{s.port}"}
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    texts = done.stdout.decode().split(f"\n{END}\n")
    assert texts.pop() == "" and len(texts) == len(blocks()), done.stdout.decode()
    return texts


def test_every_block_prints_what_the_page_says(tmp_path):
    cloche.need("curl", bool(shutil.which("curl")), "there is no curl")
    with services.Service() as s:
        texts = printed(s, tmp_path)
    if os.environ.get("CLOCHE_SHOW"):
        print("\n".join(f"{commands}---\n{text}===" for (commands, _), text in zip(blocks(), texts)))
    for (commands, expected), text in zip(blocks(), texts):
        assert expected and re.fullmatch(pattern(expected), text), f"{commands}\nprints\n{text}\ninstead of\n{expected}"


def test_every_route_is_walked():
    """A route that is added to the document is added to the page."""
    text = "\n".join(commands for commands, _ in blocks())
    for name, value in (("BOX", "http://cloche/v1/sandboxes/ID"), ("[PTS]", "http://cloche/v1/sandboxes/ID/processes/ID")):
        text = re.sub(rf"\$\{{?{name}\b\}}?", value, text)
    text = re.sub(r"\$\(field id <\w+\.json\)", "ID", text).replace("$CLOCHE_TCP", "http://cloche")
    walked = set(re.findall(r"http://cloche(/[^\s\"'?;]*)", text))
    document = json.loads((cloche.TOP / "docs" / "openapi.json").read_text())
    for path in document["paths"]:
        shape = re.compile(re.sub(r"\\\{path\\\}", r"[^ ]*", re.sub(r"\\\{(?!path)\w+\\\}", "[^/]+", re.escape(path))))
        assert any(shape.fullmatch(w) for w in walked), f"{PAGE.name} does not show {path}"
