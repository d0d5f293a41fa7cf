# SPDX-License-Identifier: Apache-2.0
"""Real registries for the session; hostile ones are made by each test."""
import pytest
import registry as registries


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    registries.need("openssl")
    return registries.Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="session")
def image():
    return registries.Image(layers=3)


@pytest.fixture(scope="session")
def registry(tmp_path_factory, image):
    """An open registry on plain HTTP with library/python:3.12-slim."""
    registries.need("docker-registry", "skopeo")
    where = tmp_path_factory.mktemp("registry")
    with registries.Registry(where / "open") as one:
        registries.push(image.layout(where / "image"), one, "library/python:3.12-slim")
        yield one


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"
