"""Local sandboxes, under each isolation that this machine permits."""

import asyncio
import shutil
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest

from agent_env.errors import SandboxLostError
from agent_env.processes import Isolation, isolation_works
from agent_env.results import SandboxRef
from agent_env.sandboxes.base import Sandbox, SandboxProvider, SandboxSpec
from agent_env.sandboxes.local import LocalProvider
from agent_env.testing.conformance import SandboxCommandsContract, SandboxProviderContract

needs_bubblewrap = pytest.mark.skipif(
    not isolation_works(Isolation.BUBBLEWRAP), reason="needs-bubblewrap"
)
SHORT = timedelta(seconds=20)
Killed = Callable[[str], AbstractContextManager[None]]
Until = Callable[..., Awaitable[None]]


class Naps(Protocol):
    command: str

    def running(self) -> list[int]: ...


class TestLocalProvider(SandboxProviderContract, SandboxCommandsContract):
    @pytest.fixture
    def provider(self, tmp_path: Path, isolation: Isolation) -> SandboxProvider:
        return LocalProvider(tmp_path / "state", isolation=isolation)


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncGenerator[LocalProvider]:
    provider = LocalProvider(tmp_path / "state")
    yield provider
    for owner in await provider.owners():
        for ref in await provider.list_owned(owner):
            await provider.destroy(ref)


async def made(provider: LocalProvider, **options: object) -> tuple[SandboxRef, Sandbox]:
    spec = SandboxSpec.model_validate({"type": "local", "name": "box", **options})
    ref = await provider.create(spec, owner="run", key=f"k{len(options)}")
    return ref, await provider.attach(ref)


async def sh(sandbox: Sandbox, command: str) -> str:
    done = await sandbox.exec(["sh", "-c", command], timeout=SHORT)
    assert (done.exit_code, done.timed_out) == (0, False), done
    return done.stdout


def folder_of(provider: LocalProvider, tmp_path: Path, ref: SandboxRef) -> Path:
    return tmp_path / "state" / "sandboxes" / ref.id


@needs_bubblewrap
async def test_a_sandbox_has_a_root_of_its_own(provider: LocalProvider) -> None:
    _, sandbox = await made(provider)
    await sandbox.write_file("/data/deep/x", b"mine")

    seen = await sh(sandbox, "pwd; id -un; echo $HOME $TMPDIR; cat /data/deep/x; echo 1 > /app/y")

    assert seen == "/home/agent\nagent\n/home/agent /tmp\nmine"
    assert await sandbox.read_file("/app/y") == b"1\n"


@needs_bubblewrap
async def test_a_sandbox_sees_nothing_of_the_machine_but_its_programs(
    provider: LocalProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPISODES_TEST_SECRET", "hidden")
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    _, neighbor = await made(provider, memory_mb=100)
    await neighbor.write_file("/app/x", b"hidden")
    _, sandbox = await made(provider)

    looks = (
        f"cat {secret} {tmp_path}/state/sandboxes/*/*/root/app/x /etc/shadow 2>/dev/null; env; "
        f"ls -d /root {Path.home()} {tmp_path} 2>/dev/null; ls / /app; cat /proc/*/cmdline; "
        "cat /proc/*/environ 2>/dev/null; echo end"
    )

    done = await sandbox.exec(["sh", "-s"], stdin=looks.encode(), timeout=SHORT)

    assert done.stdout.endswith("end\n")
    assert "bwrap" in done.stdout
    assert "hidden" not in done.stdout
    assert str(tmp_path) not in done.stdout
    assert "/root" not in done.stdout.split()


@needs_bubblewrap
async def test_the_system_can_not_be_written_to(provider: LocalProvider) -> None:
    _, sandbox = await made(provider)

    done = await sandbox.exec(["touch", "/usr/x", "/etc/x", "/x", "/bin/x", "/proc/sys/x"])

    assert done.exit_code == 1
    assert done.stderr.count("touch: ") == 5
    with pytest.raises(OSError, match="read-only"):
        await sandbox.write_file("/usr/bin/x", b"")
    with pytest.raises(OSError, match="read-only"):
        await sandbox.write_file("/etc/passwd", b"")


async def test_there_is_no_network_unless_asked(provider: LocalProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = [
            "/usr/bin/env", "python3", "-c",
            f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)",
        ]  # fmt: skip
        _, closed = await made(provider)
        _, opened = await made(provider, network=True)

        refused = await closed.exec(connect, timeout=SHORT)
        connected = await opened.exec(connect, timeout=SHORT)

    assert refused.exit_code == 1
    assert "Error" in refused.stderr
    assert connected.exit_code == 0, connected


@needs_bubblewrap
async def test_a_fork_bomb_stays_within_its_number_of_processes(
    provider: LocalProvider, naps: Naps
) -> None:
    ref, sandbox = await made(provider, processes=30)
    bomb = f"for i in $(seq 200); do {naps.command} & done"

    done = await sandbox.exec(["sh", "-c", bomb], timeout=timedelta(seconds=3))

    assert done.exit_code != 0 or "fork" in done.stderr.lower(), done
    assert "fork" in done.stderr.lower()
    assert naps.running() == []
    assert await sh(sandbox, "echo alive") == "alive\n"
    await provider.destroy(ref)


async def test_memory_over_the_limit_is_refused_to_the_command(provider: LocalProvider) -> None:
    _, sandbox = await made(provider, memory_mb=512)

    done = await sandbox.exec(["head", "-c", "900000000", "/dev/zero"], max_output_bytes=10)
    greedy = await sandbox.exec(
        ["/usr/bin/env", "python3", "-c", "b = bytearray(900_000_000)"], timeout=SHORT
    )

    assert done.exit_code == 0
    assert greedy.exit_code == 1
    assert "MemoryError" in greedy.stderr


async def test_a_file_over_the_limit_is_cut_off(provider: LocalProvider) -> None:
    _, sandbox = await made(provider, disk_mb=1)

    done = await sandbox.exec(["dd", "if=/dev/zero", "of=big", "bs=65536", "count=64"])

    assert done.exit_code != 0
    with pytest.raises(ValueError, match="1,048,576 bytes"):
        await sandbox.read_file("big", max_bytes=1000)


async def test_a_sandbox_whose_folder_goes_while_a_command_runs_is_lost(
    tmp_path: Path, isolation: Isolation, naps: Naps, until: Until
) -> None:
    provider = LocalProvider(tmp_path / "state", isolation=isolation)
    ref, sandbox = await made(provider)
    folder = folder_of(provider, tmp_path, ref)
    running = asyncio.create_task(sandbox.exec(["sh", "-c", f"echo > begun; {naps.command}"]))
    await until((folder / "root/home/agent/begun").exists)

    shutil.rmtree(folder)

    with pytest.raises(SandboxLostError):
        await asyncio.wait_for(running, 5)
    assert naps.running() == []
    with pytest.raises(SandboxLostError):
        await sandbox.exec(["true"])
    await provider.destroy(ref)
    assert await provider.owners() == set()


async def test_what_a_dead_worker_left_running_dies_with_the_sandbox(
    tmp_path: Path, isolation: Isolation, naps: Naps, until: Until, killed_at_the_end: Killed
) -> None:
    provider = LocalProvider(tmp_path / "state", isolation=isolation)
    ref, _ = await made(provider)
    program = f"""
import asyncio
from pathlib import Path
from agent_env.processes import Isolation
from agent_env.results import SandboxRef
from agent_env.sandboxes.local import LocalProvider

async def main():
    state, isolation = Path({str(tmp_path / "state")!r}), Isolation({isolation.value!r})
    provider = LocalProvider(state, isolation=isolation)
    sandbox = await provider.attach(SandboxRef.model_validate_json({ref.model_dump_json()!r}))
    await sandbox.exec(["sh", "-c", "setsid sh -c 'echo > begun; {naps.command}' & {naps.command}"])

asyncio.run(main())
"""
    begun = folder_of(provider, tmp_path, ref) / "root/home/agent/begun"
    with killed_at_the_end(program):
        await until(begun.exists, within_s=30)

    await provider.destroy(ref)

    # Killed they are; that their last one is taken off the list may take a moment more.
    await until(lambda: naps.running() == [], within_s=1)


async def test_uploads_keep_what_can_be_run_and_links(
    provider: LocalProvider, tmp_path: Path
) -> None:
    kit = tmp_path / "kit"
    (kit / "bin").mkdir(parents=True)
    (kit / "bin/hello").write_text("#!/bin/sh\necho hello from $PWD\n")
    (kit / "bin/hello").chmod(0o700)
    (kit / "hi").symlink_to("bin/hello")
    _, sandbox = await made(provider)
    await sandbox.upload(kit, "/app/kit")

    done = await sandbox.exec(["./hi"], cwd="/app/kit")

    assert done.stdout.startswith("hello from /")
    assert done.stdout.endswith("/app/kit\n")


async def test_a_missing_working_folder_is_told_by_the_command(provider: LocalProvider) -> None:
    _, sandbox = await made(provider)

    done = await sandbox.exec(["pwd"], cwd="/app/none")

    assert done.exit_code != 0
    assert "/app/none" in done.stderr


async def test_what_an_agent_locked_or_nested_is_removed(
    tmp_path: Path, isolation: Isolation
) -> None:
    provider = LocalProvider(tmp_path / "state", isolation=isolation)
    ref, sandbox = await made(provider)
    await sh(
        sandbox,
        f"ln -s {tmp_path} out; mkfifo pipe; mkdir -p a/b/c; touch a/b/c/x; chmod 0 a/b/c a/b a; "
        "touch \"$(printf 'x\\377\\ny')\" /tmp/y 2>/dev/null || true",
    )

    await provider.destroy(ref)

    assert list((tmp_path / "state" / "sandboxes").iterdir()) == []


async def test_an_agents_links_lead_nowhere_out_of_its_sandbox(
    tmp_path: Path, isolation: Isolation
) -> None:
    provider = LocalProvider(tmp_path / "state", isolation=isolation)
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    _, sandbox = await made(provider)
    await sh(sandbox, f"ln -s {secret} file; ln -s {'../' * 40}{tmp_path} climb")

    with pytest.raises(FileNotFoundError):
        await sandbox.read_file("climb/secret")
    await sandbox.write_file("file", b"mine")
    await sandbox.download(".", tmp_path / "back")

    assert secret.read_text() == "hidden"
    assert (tmp_path / "back" / "file").read_bytes() == b"mine"
