"""Connects to Temporal, where its own settings say or embedded, and to the run index."""

import asyncio
from pathlib import Path

from temporalio.client import Client, RetryConfig
from temporalio.envconfig import ClientConfigProfile

from agent_env.config import Settings
from agent_env.embedded import find_running
from agent_env.errors import ConfigError, UnavailableError
from agent_env.plugin import EpisodePlugin
from agent_env.runs import RunIndex

# With the default, `handle.result()` gives up after 10 s of a server that is away.
_PATIENT = RetryConfig(max_elapsed_time_millis=120_000, max_retries=100)


def external_address() -> str | None:
    """The Temporal address that its environment variables or profile file name, if they do.

    Raises:
        ConfigError: the profile can't be read.
    """
    try:
        return ClientConfigProfile.load().address
    except Exception as error:
        raise ConfigError(f"Temporal's profile can't be read: {error}; mend its file") from error


async def connect(state_dir: Path) -> Client:
    """A client of the Temporal server that its own settings name, else of the embedded one.

    Raises:
        UnavailableError: no server answers; the message says how to start one.
    """
    if external_address() is not None:
        config = ClientConfigProfile.load().to_client_connect_config()
        where = config.get("target_host", "")
        try:
            return await Client.connect(**config, plugins=[EpisodePlugin()], retry_config=_PATIENT)
        except RuntimeError as error:
            raise UnavailableError(f"Temporal at {where} does not answer: {error}") from error
    running = find_running(state_dir)
    if running is None:
        raise UnavailableError(
            "no Temporal server runs here and TEMPORAL_ADDRESS names none; start the embedded one "
            "with `episodes up`"
        )
    return await connect_to(running.address)


async def connect_to(address: str, *, namespace: str = "default") -> Client:
    """A client of the server at this address.

    Raises:
        UnavailableError: it does not answer.
    """
    try:
        return await Client.connect(
            address, namespace=namespace, plugins=[EpisodePlugin()], retry_config=_PATIENT
        )
    except RuntimeError as error:
        raise UnavailableError(f"Temporal at {address} does not answer: {error}") from error


async def open_index(settings: Settings) -> RunIndex:
    """The run index that the settings name; the state folder is made if it is missing.

    Raises:
        IndexUnavailableError: its database does not answer or can't be written.
        ConfigError: its schema is not this code's; the message says what to run.
    """
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    return await asyncio.to_thread(RunIndex.open, settings.database_url)


async def settled() -> None:
    """Wait a moment before the event loop may close.

    CPython 3.11 aborts at exit when it closes right after a client or a worker was used
    (sdk-python#300).
    """
    await asyncio.sleep(0.05)
