# SPDX-License-Identifier: Apache-2.0
"""One service for the whole session."""
import cloche
import pytest
import service as services


@pytest.fixture(scope="session")
def service():
    cloche.need("native")
    cloche.need("service")
    with services.Service() as one:
        yield one
