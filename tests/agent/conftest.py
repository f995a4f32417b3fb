"""The NVML stub, built once for each process that runs tests."""

from pathlib import Path

import pytest

from tests.agent.stub import Orders, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def orders(library: Path, tmp_path: Path) -> Orders:
    return Orders(library, tmp_path / "orders")
