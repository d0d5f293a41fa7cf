# SPDX-License-Identifier: Apache-2.0
"""One service for the whole session, one sandbox per test; whoever kills or configures a service makes its own."""
import cloche
import contract
import pytest
import service as services


@pytest.fixture(scope="session")
def service():
    """A running service; nothing of it may be left when the session is over."""
    cloche.need("native")
    cloche.need("service")
    before = cloche.snapshot()
    one = services.Service()
    try:
        yield one
    finally:
        one.stop()
    left = [text for text in cloche.leftovers(before, 10) if str(one.folder) in text or not text.startswith("file")]
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="session", params=contract.RUNTIMES)
def runtime(request, service):
    """The name of each runtime in turn; one that is not available here is skipped, with the service's own words."""
    known = {r["name"]: r for r in service.root.get("/v1/runtimes")["runtimes"]}
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
