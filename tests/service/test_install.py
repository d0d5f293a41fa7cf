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


def test_over_http_there_is_no_network_by_default(networked):
    one = Http(networked.root)
    one.hello()
    r = one.tool("install_packages", packages=["six"])
    assert r.is_error and "no network" in r.text and "pypi.org" in r.text
    tools = {t["name"]: t for t in one.result("tools/list")["tools"]}
    assert not tools["run_python"]["annotations"]["openWorldHint"] and "; no network." in tools["run_python"]["description"]
    assert one.close().status == 204


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


# ------------------------------------------------------------------- over HTTP: `service: mcp:` of the configuration


def rules(server, *names):
    return server.rules(*names)[1::2]


@pytest.fixture(scope="module")
def configured(server):
    mcp = {"network": "allow", "allow": rules(server, "pypi.test", "npm.test"), "memory": "1g", "pids-limit": "256", "timeout": "60s",
           "env": {"PIP_INDEX_URL": server.url("/simple", "pypi.test"), "npm_config_registry": server.url("", "npm.test")}}
    more = {"resolve": {n: ["127.0.0.1"] for n in server.names}, "upstream_ca": str(server.folder / "ca.pem")}
    with services.Service(service={"mcp": mcp}, policy={"network_private": ["127.0.0.0/8"], "timeout": "90s"}, more=more) as one:
        yield one


@pytest.fixture
def over_http(configured):
    """A session of an agent with a key, and the same in the stateless revision."""
    key = configured.key("agent")
    session = Http(key)
    session.hello()
    yield session, Http(key, modern=True)
    assert session.close().status == 204
    until(lambda: not alive(configured))


@pytest.mark.parametrize("manager, package, tool, code", [
    ("pip", "wheelhouse-test==1.0", "run_python", ANSWER),
    pytest.param("npm", "parcel-test@^1.0.0", "run_node", "console.log(require('parcel-test')())", marks=pytest.mark.needs("npm"))])
def test_over_http_packages_are_installed(over_http, manager, package, tool, code):
    session, stateless = over_http
    r = session.tool("install_packages", packages=[package], manager=manager)
    assert not r.is_error and r.text.startswith('Installed. Pass "sandbox": "session"'), r.text
    assert session.tool(tool, code=code, sandbox="session").structured["stdout"] == "42\n"
    assert session.tool(tool, code=code).is_error, "a new sandbox has nothing of it"
    r = stateless.tool("install_packages", packages=[package], manager=manager)
    box = r.structured["sandbox"]
    assert not r.is_error and f'"sandbox": "{box}"' in r.text, r.text
    assert stateless.tool(tool, code=code, sandbox=box).structured["stdout"] == "42\n"
    assert stateless.tool("reset", sandbox=box).structured["ended"] == [box]


def test_over_http_runs_have_the_same_network(over_http, server):
    session, _ = over_http
    for more in ({}, {"sandbox": "session"}):
        assert "wheelhouse" in session.tool("run_python", code=reach(server, "pypi.test", "/simple/wheelhouse-test/"), **more).text
        r = session.tool("run_python", code=reach(server), **more)
        assert r.structured["error_code"] == "SANDBOX_NETWORK_DENIED" and f"web.test:{server.tls}" in r.text, r.text


def test_over_http_the_tools_tell_of_it(over_http):
    for one in over_http:
        tools = {t["name"]: t for t in one.result("tools/list")["tools"]}
        assert {n for n, t in tools.items() if t["annotations"]["openWorldHint"]} == {"run_python", "run_node", "run_shell", "install_packages"}
        told = tools["run_python"]
        assert "At most 60 seconds." in told["description"] and told["inputSchema"]["properties"]["timeout"]["maximum"] == 60


def test_it_is_for_mcp_only(configured, server):
    """What the same key asks of the API by itself is as strict as ever."""
    run = {"language": "python", "code": reach(server, "pypi.test", "/simple/")}
    one = configured.key("plain").expect(200, "POST", "/v1/runs", json=run).json
    assert one["error_code"] == "COMMAND_FAILED" and one["enforced"]["network_denials"] == "not observed", one


def test_a_network_of_the_defaults_is_told_too(server):
    """As every run of the service has it, those of models do, whatever `mcp` says or not."""
    more = {"defaults": {"network": "allow", "allow": rules(server, "web.test"), "timeout": "7s"}, "resolve": {"web.test": ["127.0.0.1"]},
            "upstream_ca": str(server.folder / "ca.pem")}
    with services.Service(policy={"network_private": ["127.0.0.0/8"]}, more=more) as s:
        one = Http(s.root)
        one.hello()
        told = {t["name"]: t for t in one.result("tools/list")["tools"]}["run_python"]
        assert told["annotations"]["openWorldHint"] and "At most 7 seconds." in told["description"]
        assert one.tool("run_python", code=reach(server)).structured["stdout"] == "hello from outside\n"
        one.close()
    with services.Service(service={"mcp": {"network": "none"}}, policy={"network_private": ["127.0.0.0/8"]}, more=more) as s:
        one = Http(s.root)
        one.hello()
        assert not {t["name"]: t for t in one.result("tools/list")["tools"]}["run_python"]["annotations"]["openWorldHint"]
        assert one.tool("run_python", code=reach(server)).structured["error_code"] == "COMMAND_FAILED"
        assert "no network" in one.tool("install_packages", packages=["six"]).text
        one.close()


def test_a_policy_that_changes_binds_it(server):
    """The service keeps what it read at the start, and the spawner the file as it is."""
    mcp = {"network": "allow", "allow": rules(server, "web.test")}
    more = {"resolve": {"web.test": ["127.0.0.1"]}, "upstream_ca": str(server.folder / "ca.pem")}
    with services.Service(service={"mcp": mcp}, policy={"network_private": ["127.0.0.0/8"]}, more=more) as s:
        one = Http(s.root)
        one.hello()
        assert one.tool("run_python", code=reach(server)).structured["stdout"] == "hello from outside\n"
        s.config.write_text(services.configuration(s.folder, s.port, {"mcp": mcp}, {"network": "none"}, more))
        r = one.tool("run_python", code=reach(server))
        assert r.is_error and "hello" not in r.text and "/" not in r.text, r.text
        one.close()


@pytest.mark.parametrize("mcp, policy, words", [
    ({"netwrok": "allow"}, {}, "service: mcp: unknown key netwrok: these are what defaults may have, and env"),
    ({"volume": ["/:/host"]}, {}, "service: mcp: unknown key volume"), ({"best_effort": "true"}, {}, "service: mcp: unknown key best_effort"),
    ({"out": "/tmp"}, {}, "service: mcp: unknown key out"), ("allow", {}, "service: mcp: must be a mapping"),
    ({"network": "host"}, {}, "service: mcp: network: "), ({"network": "allow", "allow": ["http://"]}, {}, "service: mcp: allow: "),
    ({"preset": ["pypi"]}, {}, "service: mcp: --preset pypi: there is no network under --network none; add --network allow"),
    ({"network": "allow", "preset": ["pipy"]}, {}, "service: mcp: there is no preset pipy"), ({"network": "allow", "credential": ["nobody"]}, {}, "there is no credential nobody"),
    ({"network": "allow"}, {"network": "none"}, "service: mcp: --network allow: the operator's policy allows at most none (policy: network)"),
    ({"network": "allow", "allow": ["x.test within=10.0.0.0/8"]}, {}, "service: mcp: --allow: "),
    ({"timeout": "2m"}, {"timeout": "60s"}, "service: mcp: --timeout: the operator's policy allows at most 60s"),
    ({"memory": "lots"}, {}, "service: mcp: memory: "), ({"memory": ["1g"]}, {}, "service: mcp: memory: "),
    ({"max_output": "2m"}, {}, "service: mcp: max_output: for a model at most 1m"), ({"env": ["A=b"]}, {}, "service: mcp: env: must be an object of strings"),
])
def test_a_configuration_that_is_wrong(tmp_path, mcp, policy, words):
    (tmp_path / "c.yaml").write_text(json.dumps({"service": {"mcp": mcp}, "policy": policy}))
    done = cloche.run(["serve", "--check", "--config", str(tmp_path / "c.yaml")], json=False)
    assert done.returncode == 1 and words in done.stderr.decode() and str(tmp_path) in done.stderr.decode(), done.stderr


@pytest.mark.parametrize("more, mcp", [
    ({"defaults": {"network": "allow"}, "policy": {"network": "none"}}, {"network": "none"}), ({"defaults": {"preset": ["pypi"]}}, {"network": "allow"}),
    ({"defaults": {"network": "allow", "preset": ["pipy"]}}, {"network": "none"}),
    ({"defaults": {"timeout": "2m", "network_bytes": "2g"}, "policy": {"timeout": "60s", "network_bytes": "1g"}}, {"timeout": "60s"})], ids=str)
def test_defaults_that_no_run_can_have_are_not_refused_at_the_start(tmp_path, more, mcp):
    """A request may say otherwise; so may `mcp`."""
    for keys in ({}, {"service": {"mcp": mcp}}):
        (tmp_path / "c.yaml").write_text(json.dumps({**more, **keys}))
        done = cloche.run(["serve", "--check", "--config", str(tmp_path / "c.yaml")], json=False)
        assert done.returncode == 0 and b": ok" in done.stdout, done.stderr


# ------------------------------------------------------------------------------------------- who gives what network


@pytest.fixture(params=["direct", "service"])
def way(request, networked, server, config):
    """Environment of either way; the operator's file is the same for both."""
    config(server.config())
    return {"CLOCHE_DIRECT": "1"} if request.param == "direct" else {"CLOCHE_SOCKET": networked.sock}


def reach(server, name="web.test", path="/hello.txt"):
    return FETCH.format(server.url(path, name))


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
