# SPDX-License-Identifier: Apache-2.0
"""`cloche mcp`, and /mcp of the service, driven by published clients as they are: PyPI's mcp, npm's two, and the MCP Inspector's
command line."""
import json
import os
import shutil
import subprocess
import time

import clients
import cloche
import pytest
import service as services
import web
from mcp_stdio import processes_with, until

pytestmark = pytest.mark.needs("native", "python", "node", "service")
HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = ["run_python", "run_node", "run_shell", "write_file", "read_file", "list_files", "install_packages", "list_sandboxes", "reset"]


@pytest.fixture(params=["direct", "service"])
def way(request, service):
    return {"CLOCHE_DIRECT": "1"} if request.param == "direct" else {"CLOCHE_SOCKET": service.sock}


@pytest.fixture
def url(service):
    return f"http://127.0.0.1:{service.port}/mcp"


def drive(command, way, mark, url=None, options=()):
    env = cloche.environment({**way, "MARK": mark})
    done = subprocess.run([*command, *([url] if url else [cloche.binary(), "mcp", *options])], env=env, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(saw, revision, kept, networked=False):
    """What every client has to have seen."""
    assert saw["revision"] == revision and saw["tools"] == TOOLS
    ran = saw["run_python"]
    assert not ran["error"] and ran["structured"]["stdout"] == "42\n" and sorted(ran["kinds"]) == ["image", "resource_link", "text"]
    assert saw["resource"] == ["1,2"] and saw["run_node"]["structured"]["stdout"] == "4\n"
    assert saw["run_shell"]["error"] and saw["run_shell"]["text"] == "exit=3\nstdout:\nstderr:\nerr"
    assert 1 <= len(saw["progress"]) <= 2 and saw["progress"][0][1] == 30 and "running" in saw["progress"][0][2]
    if kept:
        assert saw["read_file"]["text"] == "print('kept')" and saw["list_files"]["text"] == "a.py  13\n"
        assert len(saw["list_sandboxes"]["structured"]["sandboxes"]) == 1 and len(saw["reset"]["structured"]["ended"]) == 1
        installed = saw["install_packages"]
        assert saw["imported"] == ("42\n" if networked else "") and installed["error"] is not networked
        assert networked or "no network" in installed["text"] and "pypi.org" in installed["text"]
    else:
        for name in ("write_file", "read_file", "list_files", "install_packages", "list_sandboxes", "reset"):
            assert saw[name]["error"], saw[name]
    assert saw["cancelled"] and saw["parallel"] == [f"{i}\n" for i in range(5)] and saw["wrong"] and "no_such_tool" in saw["unknown"]


@pytest.mark.parametrize("mode, revision", [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_pypi_mcp(way, mode, revision):
    mark = f"7{time.time():.3f}"
    saw = drive([clients.python(), os.path.join(HERE, "drive.py"), mode], way, mark)
    check(saw, revision, "CLOCHE_SOCKET" in way)
    until(lambda: not processes_with(mark))


@pytest.mark.parametrize("package, mode, revision", [("sdk", "legacy", "2025-11-25"), ("client", "legacy", "2025-11-25"), ("client", "auto", "2026-07-28")])
def test_npm(way, package, mode, revision):
    where, mark = clients.node(), f"8{time.time():.3f}"
    script = shutil.copy(os.path.join(HERE, "drive.mjs"), where)  # it finds its packages by where it is
    saw = drive(["node", script, package, mode], way, mark)
    check(saw, revision, "CLOCHE_SOCKET" in way)
    until(lambda: not processes_with(mark))


@pytest.mark.parametrize("mode, revision", [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_pypi_mcp_over_http(service, url, mode, revision):
    mark = f"7{time.time():.3f}"
    saw = drive([clients.python(), os.path.join(HERE, "drive.py"), mode], {"KEY": service.key("pypi").secret}, mark, url)
    check(saw, revision, True)
    until(lambda: not processes_with(mark))


@pytest.mark.parametrize("package, mode, revision", [("sdk", "legacy", "2025-11-25"), ("client", "legacy", "2025-11-25"), ("client", "auto", "2026-07-28")])
def test_npm_over_http(service, url, package, mode, revision):
    where, mark = clients.node(), f"8{time.time():.3f}"
    script = shutil.copy(os.path.join(HERE, "drive.mjs"), where)
    saw = drive(["node", script, package, mode], {"KEY": service.key("npm").secret}, mark, url)
    check(saw, revision, True)
    until(lambda: not processes_with(mark))


@pytest.mark.needs("root")
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("driver", ["pypi", "npm"])
def test_packages_from_an_index(driver, transport, tmp_path):
    """The same with a network, by options or by the service's configuration: what the client had installed is there for its next run."""
    cloche.need("web")
    mark, options = f"9{time.time():.3f}", ["--timeout", "30s", "--memory", "512m"]
    with web.Web(tmp_path) as w:
        more = {"resolve": {n: ["127.0.0.1"] for n in w.names}, "upstream_ca": str(w.folder / "ca.pem")}
        options += ["--network", "allow", *w.rules("pypi.test"), "--env", f"PIP_INDEX_URL={w.url('/simple', 'pypi.test')}"]
        mcp = {"network": "allow", "allow": w.rules("pypi.test")[1::2], "memory": "512m", "env": {"PIP_INDEX_URL": w.url("/simple", "pypi.test")}}
        with services.Service({"mcp": mcp} if transport == "http" else {}, policy={"network_private": ["127.0.0.0/8"]}, more=more) as one:
            command = [clients.python(), os.path.join(HERE, "drive.py"), "auto"] if driver == "pypi" else \
                ["node", shutil.copy(os.path.join(HERE, "drive.mjs"), clients.node()), "client", "auto"]
            saw = drive(command, {"CLOCHE_SOCKET": one.sock}, mark, options=options) if transport == "stdio" else \
                drive(command, {"KEY": one.key(driver).secret}, mark, f"http://127.0.0.1:{one.port}/mcp")
            check(saw, "2026-07-28", True, networked=True)
    until(lambda: not processes_with(mark))


def inspect_every_tool(inspect, kept):
    """By inspect(ARGUMENT..., status=0), which gives the JSON that is printed. Each is a session of its own."""
    def call(name, *args, status=0):
        return inspect("--method", "tools/call", "--tool-name", name, *(word for a in args for word in ("--tool-arg", a)), status=status)
    assert [t["name"] for t in inspect("--method", "tools/list")["tools"]] == TOOLS
    assert inspect("--method", "resources/list") == {"resources": []}
    ran = call("run_python", "code=print(6 * 7)")
    assert ran["structuredContent"]["stdout"] == "42\n" and ran["isError"] is False
    assert call("run_node", "code=console.log(2 + 2)")["structuredContent"]["stdout"] == "4\n"
    assert call("run_shell", "command=exit 3", status=5)["structuredContent"]["exit_code"] == 3  # 5: "isError": true
    assert call("write_file", "path=a", "content=x", status=0 if kept else 5)["isError"] is not kept
    refused = call("install_packages", 'packages=["six"]', status=5)["content"][0]["text"]  # no network, or nothing that is kept
    assert ("no network" in refused) is kept
    assert call("list_sandboxes", status=0 if kept else 5)["isError"] is not kept
    assert call("reset", status=0 if kept else 5)["isError"] is not kept
    for name, *args in (("read_file", "path=a"), ("list_files",)):
        assert "no kept sandbox yet" in call(name, *args, status=5)["content"][0]["text"] or not kept


def test_the_inspectors_command_line_over_http(service, url):
    inspector = os.path.join(clients.node(), "node_modules", ".bin", "mcp-inspector")
    key = service.key("inspector").secret

    def inspect(*args, status=0):
        done = subprocess.run([inspector, "--cli", url, "--transport", "http", "--header", f"Authorization: Bearer {key}", *args],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done
        return json.loads(done.stdout)
    inspect_every_tool(inspect, True)


def test_the_inspectors_command_line(way):
    inspector = os.path.join(clients.node(), "node_modules", ".bin", "mcp-inspector")

    (setting,) = (f"{k}={v}" for k, v in way.items())  # it gives the server no other variable of ours

    def inspect(*args, status=0):
        done = subprocess.run([inspector, "--cli", "-e", setting, cloche.binary(), "mcp", *args], env=cloche.environment(way), capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == status, done
        return json.loads(done.stdout)
    inspect_every_tool(inspect, "CLOCHE_SOCKET" in way)
