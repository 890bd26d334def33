"""The processes of docker-compose.yml, started here as the file starts them.

With its own commands and variables: only names of machines and folders are those of here, and the
embedded server stands in for the image of Temporal, which has to be pulled.
"""

import asyncio
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from agent_env.config import Settings
from agent_env.embedded import embedded_server
from agent_env.runs import RunRecord
from agent_env.status import RunStatus
from agent_env.trainer import Trainer
from tests.compose import SECRETS, ours
from tests.end_to_end.agreement import disagreements_left
from tests.end_to_end.stage import box, command, spec
from tests.end_to_end.who_dies import LONG, Process, left_behind, serves, until
from tests.postgres import PostgresServer

SERVICES = ours()
STATE_DIR = SERVICES["worker"]["environment"]["EPISODES_STATE_DIR"]


class Stack:
    """What the services of the file find here."""

    def __init__(self, folder: Path, postgres_port: int, temporal: str) -> None:
        self.folder = folder
        self._moved = {
            "@postgres:5432": f"@127.0.0.1:{postgres_port}",
            "temporal:7233": temporal,
            "0.0.0.0": "127.0.0.1",
            "8080": str(free_port()),
        }

    @property
    def explorer(self) -> str:
        return f"http://127.0.0.1:{self._moved['8080']}"

    def environment(self, service: str, name: str) -> dict[str, str]:
        given: Mapping[str, str] = SERVICES[service]["environment"]
        return {key: self._here(value, name) for key, value in given.items()}

    def start(self, service: str, name: str) -> Process:
        """One container of a service; its state folder has this name."""
        (self.folder / name).mkdir(exist_ok=True)
        words = [self._here(word, name) for word in SERVICES[service]["command"]]
        return Process("-m", "agent_env.cli", *words, env=self.environment(service, name))

    @contextmanager
    def running(self, service: str, name: str) -> Generator[Process]:
        process = self.start(service, name)
        try:
            yield process
        finally:
            process.end()

    def _here(self, text: str, name: str) -> str:
        for there, here in self._moved.items():
            text = text.replace(there, here)
        return text.replace(STATE_DIR, str(self.folder / name))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
async def stack(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Stack]:
    """PostgreSQL as the file makes it, with the user, the database and the password it says."""
    url = make_url(SERVICES["worker"]["environment"]["EPISODES_DATABASE"])
    with psycopg.connect(
        host="127.0.0.1",
        port=postgres.port,
        user=postgres.environment["PGUSER"],
        password=postgres.environment["PGPASSWORD"],
        dbname="postgres",
        autocommit=True,
    ) as admin:
        secret = SECRETS["POSTGRES_PASSWORD"]
        admin.execute(f"ALTER ROLE {url.username} PASSWORD '{secret}'".encode())
        admin.execute(f"CREATE DATABASE {url.database}".encode())
        try:
            async with embedded_server(tmp_path / "temporal") as server:
                yield Stack(tmp_path, postgres.port, server.address)
        finally:
            admin.execute(f"DROP DATABASE {url.database} WITH (FORCE)".encode())
            own = postgres.environment["PGPASSWORD"]
            admin.execute(f"ALTER ROLE {url.username} PASSWORD '{own}'".encode())


def asked(stack: Stack, path: str, token: str | None) -> tuple[int, Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{stack.explorer}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, None


def until_it_answers(stack: Stack, explorer: Process) -> None:
    deadline = time.monotonic() + LONG.total_seconds()
    while True:
        try:
            assert asked(stack, "/runs.json", None)[0] in (401, 403)
        except OSError:
            assert explorer.is_alive, explorer.said
            assert time.monotonic() < deadline, explorer.said
            time.sleep(0.05)
        else:
            return


@pytest.mark.timeout(240)
async def test_migrate_two_workers_and_the_explorer_play_a_group_through_a_kill(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate = stack.start("migrate", "migrate")
    await asyncio.to_thread(migrate.output)
    workers = ["worker-1", "worker-2"]
    slow = spec(
        box(), command("works", "sleep 2"), command("scores", "echo 7", score_from="stdout")
    )

    with ExitStack() as running:
        hosts = [running.enter_context(stack.running("worker", name)) for name in workers]
        explorer = running.enter_context(stack.running("explorer", "explorer"))
        for host in hosts:
            await asyncio.to_thread(serves, host)
        await asyncio.to_thread(until_it_answers, stack, explorer)
        # A trainer beside the containers: it comes in over the published ports.
        environ = stack.environment("worker", "trainer")
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        settings = Settings(
            state_dir=stack.folder / "trainer", database=environ["EPISODES_DATABASE"]
        )
        async with Trainer.connect(settings) as trainer:
            group = await trainer.start_group(slow, size=16)
            await until(lambda: is_running(trainer, group.run_group_id))
            hosts[0].kill()
            running.enter_context(stack.running("worker", "worker-1"))  # `restart`
            result = await group.result()
            rows = await members(trainer, group.run_group_id)
            wrong = await disagreements_left(trainer.client, trainer.index)
        seen = await asyncio.to_thread(asked, stack, "/runs.json", SECRETS["EXPLORER_TOKEN"])
        closed = await asyncio.to_thread(asked, stack, "/runs.json", "x" * 24)

    assert migrate.exit_code == 0, migrate.said
    assert (result.figures.completed, result.figures.mean) == (16, 7.0)
    assert len({row.host for row in rows}) == 2
    assert wrong == []
    assert (seen[0], len(seen[1]["runs"])) == (200, 16)
    assert closed[0] in (401, 403)
    assert left_behind(*(stack.folder / name for name in workers)) == []
    for process in (*hosts, explorer, migrate):
        for secret in SECRETS.values():
            assert secret not in "".join(process.said)


async def is_running(trainer: Trainer, run_group_id: str) -> bool:
    return any(row.status is RunStatus.RUNNING for row in await members(trainer, run_group_id))


async def members(trainer: Trainer, run_group_id: str) -> Sequence[RunRecord]:
    return await asyncio.to_thread(trainer.index.members, run_group_id)
