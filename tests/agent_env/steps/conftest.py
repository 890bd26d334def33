"""A host with real steps, real sandboxes and real processes."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.agent_env.steps.real_host import RUN_ID, RealHost


@pytest.fixture
async def host(tmp_path: Path) -> AsyncGenerator[RealHost]:
    host = RealHost(tmp_path / "state")
    yield host
    assert await host.providers.destroy_owned(RUN_ID) == []
