# SPDX-License-Identifier: Apache-2.0
"""One service for the whole session, one sandbox per test; whoever kills or configures a service makes its own."""
import cloche
import contract
import pytest
import service as services


@pytest.fixture(scope="session")
def service():
    """A running service. Its end says what is left of it; tests/run.py looks at the whole machine."""
    cloche.need("native")
    cloche.need("service")
    with services.Service() as one:
        yield one


@pytest.fixture(scope="session", params=contract.RUNTIMES)
def runtime(request, service):
    """The name of each runtime in turn; one that is not available here is skipped, with the service's own words."""
    known = {r["name"]: r for r in service.root.get("/v1/runtimes")}
    assert request.param in known, f"the service does not know the runtime {request.param}: {list(known)}"
    if not known[request.param]["available"]:
        cloche.need(request.param, False, known[request.param]["detail"])
    return request.param


@pytest.fixture(scope="session")
def client(service, runtime):
    """root on the socket, making sandboxes of the runtime under test."""
    return service.root.with_runtime(runtime)


@pytest.fixture
def boxes(client):
    """boxes(memory="64m") makes a sandbox that is gone after the test."""
    made = []

    def make(**body):
        made.append(client.box(**body))
        return made[-1]
    yield make
    for box in made:
        client.request("DELETE", box.path)


@pytest.fixture
def box(boxes):
    """A sandbox with the defaults."""
    return boxes()


@pytest.fixture
def tenants(service):
    """Two callers on TCP with keys of their own."""
    two = service.key("a"), service.key("b")
    yield two
    for tenant in two:
        for row in tenant.get("/v1/sandboxes", limit=1000)["sandboxes"]:
            if row["state"] != "ended":
                tenant.request("DELETE", f"/v1/sandboxes/{row['id']}")
        service.root.request("DELETE", f"/v1/keys/{tenant.key_id}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """A failure shows what the service said meanwhile."""
    report = (yield).get_result()
    one = item.funcargs.get("service") if hasattr(item, "funcargs") else None
    if report.failed and one is not None:
        report.sections.append(("what the service said", one.said()))
