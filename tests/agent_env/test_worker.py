"""agent_env/worker.py: a server that goes away while a worker starts."""

from pathlib import Path

import pytest
from temporalio.client import Client

from agent_env.config import Settings
from agent_env.errors import UnavailableError
from agent_env.worker import open_services, serving


async def test_a_server_that_has_gone_since_the_client_connected_is_unavailable(
    tmp_path: Path,
) -> None:
    client = await Client.connect("127.0.0.1:9", lazy=True)
    client.service_client.config.lazy = False  # as if it had connected while the server was there

    async with open_services(Settings(state_dir=tmp_path)) as services:
        with pytest.raises(UnavailableError, match=r"Temporal at 127\.0\.0\.1:9 does not answer"):
            async with serving(client, services):
                pass
