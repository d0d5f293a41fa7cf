# SPDX-License-Identifier: Apache-2.0
"""install_packages, and the network that `cloche mcp`, `cloche tools call` and `cloche ask` give to sandboxes: a real index and a real
registry on loopback, by name, under the operator's policy."""
import json

import cloche
import jsonschema
import pytest
import service as services
import web
from ask import ask
from contract import until
from mcp_stdio import Mcp, outcome
from provider import Provider, openai
from test_mcp import alive
from test_mcp_http import Http

pytestmark = pytest.mark.needs("native", "root", "python", "service")
ROOM = ["--memory", "1g", "--pids-limit", "256", "--timeout", "60s"]
ANSWER = "import wheelhouse_test; print(wheelhouse_test.answer)"
FETCH = "import sys, urllib.request as u; sys.stdout.write(u.urlopen('{}').read().decode())"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    cloche.need("web")
    with web.Web(tmp_path_factory.mktemp("web")) as w:
        yield w


@pytest.fixture(scope="module")
def networked(server):
    more = {"resolve": {n: ["127.0.0.1"] for n in (*server.names, "other.test")}, "upstream_ca": str(server.folder / "ca.pem")}
    with services.Service(policy={"network_private": ["127.0.0.0/8"]}, more=more) as one:
        yield one


@pytest.fixture
def served(networked):
    yield {"CLOCHE_SOCKET": networked.sock}
    until(lambda: not alive(networked))


def options(server, *names):
    """A network with these names, or with none, and where the managers shall look."""
    return ["--network", "allow", *(server.rules(*names) if names else ["--deny", "never.test"]), *ROOM,
            "--env", f"PIP_INDEX_URL={server.url('/simple', 'pypi.test')}", "--env", f"npm_config_registry={server.url('', 'npm.test')}"]


@pytest.fixture
def open_to_both(served, server):
    with Mcp(options(server, "pypi.test", "npm.test"), served) as m:
        m.hello()
        yield m


def install(m, *packages, **more):
    return m.tool("install_packages", _timeout=90, packages=list(packages), **more)


# ------------------------------------------------------------------------------------------------------- installing


def test_what_pip_installed_can_be_imported(open_to_both):
    m = open_to_both
    schema = next(t["outputSchema"] for t in m.result("tools/list")["tools"] if t["name"] == "install_packages")
    r = install(m, "wheelhouse-test == 1.0")
    assert not r.is_error and r.text.startswith('Installed. Pass "sandbox": "session"') and "Successfully installed wheelhouse-test-1.0" in r.text, r.text
    jsonschema.Draft202012Validator(schema).validate(r.structured)
    assert m.tool("run_python", code=ANSWER, sandbox="session").structured["stdout"] == "42\n"
    assert m.tool("run_shell", command=f"python3 -c '{ANSWER}'", sandbox="session").structured["stdout"] == "42\n"
    assert "ModuleNotFoundError" in m.tool("run_python", code=ANSWER).text, "a new sandbox has nothing of it"
    again = install(m, "wheelhouse-test")
    assert not again.is_error and "already satisfied" in again.text, again.text
    assert m.tool("list_files").text == "(empty)\n" or ".packages/" in m.tool("list_files").text


def test_in_a_kept_session_the_next_run_has_it(served, server):
    with Mcp(["--session", *options(server, "pypi.test")], served) as m:
        m.hello()
        r = install(m, "wheelhouse_test>=1,<2")
        assert not r.is_error and "The next run_python" in r.text, r.text
        assert m.tool("run_python", code=ANSWER).structured["stdout"] == "42\n"


def test_in_the_stateless_revision_the_sandbox_is_named(served, server):
    with Mcp(options(server, "pypi.test"), served, modern=True) as m:
        r = install(m, "wheelhouse-test")
        box = r.structured["sandbox"]
        assert not r.is_error and f'"sandbox": "{box}"' in r.text, r.text
        assert m.tool("run_python", code=ANSWER, sandbox=box).structured["stdout"] == "42\n"


@pytest.mark.needs("npm")
def test_what_npm_installed_can_be_required(open_to_both):
    m = open_to_both
    r = install(m, "parcel-test@^1.0.0", manager="npm")
    assert not r.is_error and "added 1 package" in r.text, r.text
    assert m.tool("run_node", code="console.log(require('parcel-test')())", sandbox="session").structured["stdout"] == "42\n"
    assert m.tool("run_shell", command="echo \"import p from 'parcel-test'; console.log(p())\" >a.mjs; node a.mjs",
                  sandbox="session").structured["stdout"] == "42\n"


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("manager, host, package", [("pip", "pypi.test", "wheelhouse-test"),
                                                    pytest.param("npm", "npm.test", "parcel-test", marks=pytest.mark.needs("npm"))])
def test_what_the_policy_refuses_is_named(served, server, manager, host, package):
    before = len(server.requests())
    with Mcp(options(server), served) as m:
        m.hello()
        r = install(m, package, manager=manager)
    assert r.is_error and r.text.startswith("Not installed. ") and f"{host}:{server.tls}" in r.text and "operator" in r.text, r.text
    assert r.structured["error_code"] == "SANDBOX_NETWORK_DENIED" and len(server.requests()) == before
    assert not any(word in r.text for word in ("/", "Traceback", "errno"))


@pytest.mark.parametrize("manager, host", [("pip", "pypi.org"), ("npm", "registry.npmjs.org")])
def test_without_a_network_no_sandbox_is_made(networked, served, manager, host):
    with Mcp(env=served) as m:
        m.hello()
        r = install(m, "six", manager=manager)
        assert r.is_error and "no network" in r.text and host in r.text and "operator" in r.text and not alive(networked)
        m.process.stdin.close()
        assert b"--network allow --preset" in m.process.stderr.read()


def test_over_http_there_is_no_network(networked):
    one = Http(networked.root)
    one.hello()
    r = one.tool("install_packages", packages=["six"])
    assert r.is_error and "no network" in r.text and "pypi.org" in r.text and one.close().status == 204


def test_without_a_manager_it_says_so(served, server):
    """A folder of the sandbox's own in front of pip's."""
    hidden = ["--env", "PATH=/nowhere"]
    with Mcp([*options(server, "pypi.test"), *hidden], served) as m:
        m.hello()
        for manager in ("pip", "npm"):
            r = install(m, "six", manager=manager)
            assert r.is_error and r.text == f"Not installed: there is no {manager} in this sandbox.", r.text
    with Mcp(options(server, "pypi.test"), served) as m:
        m.hello()
        m.tool("write_file", path="pip.py", content="raise ModuleNotFoundError('No module named pip')")
        assert install(m, "six").text == "Not installed: there is no pip in this sandbox."


def test_it_has_a_time_limit(served, server):
    with Mcp(options(server, "pypi.test"), served) as m:
        m.hello()
        m.tool("write_file", path="pip.py", content="import time; print('began', flush=True); time.sleep(600)")
        r = m.tool("install_packages", packages=["six"], timeout=0.5)
        assert r.is_error and r.structured["reason"] == "timeout" and r.text.startswith("exit=124\nstdout:\nbegan\n")


def test_a_package_that_is_not_there(open_to_both):
    r = install(open_to_both, "no-such-package")
    assert r.is_error and r.text.startswith("exit=1\n") and "No matching distribution found for no-such-package" in r.text


@pytest.mark.parametrize("arguments, words", [
    ({}, 'needs the argument "packages" (array)'), ({"packages": []}, "1 to 32 strings"), ({"packages": ["a"] * 33}, "1 to 32 strings"),
    ({"packages": "six"}, "must be a list"), ({"packages": [1]}, "list of strings"), ({"packages": ["six"], "manager": "gem"}, "pip or npm"),
    ({"packages": ["six", "--target=/"]}, '"--target=/" is no package of pip'), ({"packages": ["six; touch x"]}, "is no package"),
    ({"packages": ["six"], "index": "http://x"}, 'no argument "index"'), ({"packages": ["https://x/y.whl"]}, "no URL"),
])
def test_hostile_arguments(networked, open_to_both, arguments, words):
    r = outcome(open_to_both.result("tools/call", {"name": "install_packages", "arguments": arguments}))
    assert r.is_error and words in r.text and not alive(networked), r.text


def test_annotations_are_what_it_does(open_to_both):
    notes = {t["name"]: t["annotations"] for t in open_to_both.result("tools/list")["tools"]}["install_packages"]
    assert notes["openWorldHint"] and notes["idempotentHint"] and not notes["destructiveHint"] and not notes["readOnlyHint"]


# ------------------------------------------------------------------------------------------- who gives what network


@pytest.fixture(params=["direct", "service"])
def way(request, networked, server, config):
    """Environment of either way; the operator's file is the same for both."""
    config(server.config())
    return {"CLOCHE_DIRECT": "1"} if request.param == "direct" else {"CLOCHE_SOCKET": networked.sock}


def reach(server, name="web.test"):
    return FETCH.format(server.url("/hello.txt", name))


def test_the_options_of_mcp_reach_runs(way, server):
    with Mcp(["--network", "allow", *server.rules("web.test"), *ROOM], way) as m:
        m.hello()
        assert m.tool("run_python", code=reach(server)).structured["stdout"] == "hello from outside\n"
        r = m.tool("run_python", code=reach(server, "pypi.test"))
        assert r.structured["error_code"] == "SANDBOX_NETWORK_DENIED" and f"pypi.test:{server.tls}" in r.text
        tools = {t["name"]: t for t in m.result("tools/list")["tools"]}
        assert tools["run_python"]["annotations"]["openWorldHint"] and "no network" not in tools["run_python"]["description"]
        if "CLOCHE_SOCKET" in way:
            m.tool("write_file", path="x", content="")
            assert m.tool("run_python", code=reach(server), sandbox="session").structured["stdout"] == "hello from outside\n"
            assert m.tool("run_python", code=reach(server, "pypi.test"), sandbox="session").structured["error_code"] == "SANDBOX_NETWORK_DENIED"
    with Mcp(ROOM, way) as m:
        m.hello()
        assert "hello" not in m.tool("run_python", code=reach(server)).text


def test_the_options_of_tools_call_reach_the_run(way, server):
    def call(*args):
        r = cloche.run(["tools", "call", "run_python", json.dumps({"code": reach(server)}), "--json", *args, *ROOM], json=False, env=way)
        return json.loads(r.stdout)["result"]
    assert call("--network", "allow", *server.rules("web.test"))["stdout"] == "hello from outside\n"
    assert call("--network", "allow")["error_code"] == "SANDBOX_NETWORK_DENIED" and call()["error_code"] == "COMMAND_FAILED"


def test_the_options_of_ask_reach_the_run(networked, server):
    """By a service: tests of ask start it in no mount namespace of their own."""
    way = {"CLOCHE_SOCKET": networked.sock}
    run = [("c1", "run_python", json.dumps({"code": reach(server)}))]
    more = [word for word in ROOM if word not in ("--timeout", "60s")]
    with Provider(*(openai.turn("", run), openai.turn("Done.")) * 2) as p:
        ask(openai, p, "--network", "allow", *server.rules("web.test"), *more, env=way)
        ask(openai, p, "--network", "allow", *more, env=way)
    assert openai.told(p.asked[1].json)["c1"] == "exit=0\nstdout:\nhello from outside\nstderr:"
    assert f"web.test:{server.tls}" in openai.told(p.asked[3].json)["c1"]


def test_ask_installs_and_uses(networked, server):
    way = {"CLOCHE_SOCKET": networked.sock}
    one = [("c1", "install_packages", json.dumps({"packages": ["wheelhouse-test"]}))]
    two = [("c2", "run_python", json.dumps({"code": ANSWER, "sandbox": "session"}))]
    words = options(server, "pypi.test")
    words = [w for i, w in enumerate(words) if w != "--timeout" and words[i - 1] != "--timeout"]
    with Provider(openai.turn("", one), openai.turn("", two), openai.turn("Done.")) as p:
        r = ask(openai, p, "--tools", "run_python,install_packages", "--run-timeout", "60s", *words, env=way, timeout=120)
    assert r.returncode == 0 and openai.told(p.asked[1].json)["c1"].startswith("Installed."), openai.told(p.asked[1].json)
    assert openai.told(p.asked[2].json)["c2"] == "exit=0\nstdout:\n42\nstderr:"
    (tool,) = [t["function"] for t in p.asked[0].json["tools"] if t["function"]["name"] == "install_packages"]
    assert tool["parameters"]["properties"]["packages"]["items"] == {"type": "string"}


def test_approve_network_asks_before_packages(networked, server):
    """Nobody is there to ask, so it is not done; without a network run_python is."""
    way = {"CLOCHE_SOCKET": networked.sock}
    calls = [("c1", "install_packages", json.dumps({"packages": ["six"]})), ("c2", "run_python", json.dumps({"code": "print(1)"}))]
    with Provider(openai.turn("", calls), openai.turn("Done.")) as p:
        ask(openai, p, "--approve", "network", "--tools", "run_python,install_packages", env=way)
    told = openai.told(p.asked[1].json)
    assert "nobody to ask" in told["c1"] and told["c2"].startswith("exit=0"), told
