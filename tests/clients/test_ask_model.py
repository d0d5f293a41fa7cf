# SPDX-License-Identifier: Apache-2.0
"""A conversation with a real model behind a server that we did not write: SmolLM2-135M in llama.cpp's. It is too small to call a tool; what is seen is
that its stream is understood, from the first word to the usage."""
import subprocess

import clients
import cloche
import pytest
from ask import environment, run

pytestmark = pytest.mark.needs("native")


@pytest.fixture
def server():
    command = [clients.python("requirements-model.txt"), cloche.TOP / "tests" / "clients" / "drive_model.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
        yield p.stdout.readline().decode().strip()
        p.stdin.close()


def test_a_real_model(server):
    r = run(["--base-url", server + "/v1", "--model", "smollm2", "--system", "Answer in one word.", "--max-tokens", "24", "--json",
             "What is the capital of France?"], environment(), timeout=180)
    assert r.json["reason"] in ("answered", "max_tokens") and "Paris" in r.json["answer"], r
    assert r.json["usage"]["input_tokens"] > 10 and 0 < r.json["usage"]["output_tokens"] <= 24 and r.json["requests"] == 1
