"""Tests that every sandbox provider passes. Needs pytest and, in automatic mode, pytest-asyncio.

Derive a test class and give it a fixture ``provider``::

    class TestMine(SandboxProviderContract, SandboxCommandsContract):
        @pytest.fixture
        def provider(self) -> SandboxProvider:
            return MyProvider()

``pytest.register_assert_rewrite("agent_env.testing.conformance")`` in a ``conftest.py`` shows what
a failing assertion compared.
"""
# ruff: noqa: D102 (the name of a test says what it tests)

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent_env.errors import SandboxLostError, SandboxUnavailableError
from agent_env.results import SandboxRef
from agent_env.sandboxes.base import ExecResult, Sandbox, SandboxProvider, SandboxSpec

OWNER = "run 日本/../<x>"
"""An owner with all that an id may hold."""
KEY = f"{OWNER}/deploy/1/box"
_KILL_S = 2.0
_BEGIN_S = 30.0
_CLOCKS = timedelta(minutes=10)
"""How much a provider's clock may differ from ours."""


async def _made(
    provider: SandboxProvider, *, owner: str = OWNER, key: str = KEY
) -> tuple[SandboxRef, Sandbox]:
    spec = SandboxSpec(type=provider.type, name="box", env={"GREETING": "good day"})
    ref = await provider.create(spec, owner=owner, key=key)
    return ref, await provider.attach(ref)


async def _begun(sandbox: Sandbox) -> asyncio.Task[ExecResult]:
    """A command that runs for ever, and has begun to."""
    running = asyncio.create_task(
        sandbox.exec(["sh", "-c", "echo 1 > begun; sleep 300"], cwd="/app")
    )
    deadline = time.monotonic() + _BEGIN_S
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            if await sandbox.read_file("/app/begun"):
                return running
        await asyncio.sleep(0.01)
    raise TimeoutError("the command did not begin")


class SandboxProviderContract:
    """Sandboxes come, are found and go; files travel."""

    async def test_a_reference_names_the_sandbox_as_the_task_does(
        self, provider: SandboxProvider
    ) -> None:
        ref, _ = await _made(provider)

        assert (ref.name, ref.created_at.tzinfo is not None) == ("box", True)

    async def test_a_reference_says_how_old_the_sandbox_is(self, provider: SandboxProvider) -> None:
        """What belongs to no known run is destroyed once it is old enough."""
        before = datetime.now(UTC)
        ref, _ = await _made(provider)

        (found,) = await provider.list_owned(OWNER)

        assert found.created_at == ref.created_at
        assert before - _CLOCKS < ref.created_at < datetime.now(UTC) + _CLOCKS

    async def test_creating_twice_with_one_key_makes_one_sandbox(
        self, provider: SandboxProvider
    ) -> None:
        first, _ = await _made(provider)

        again, _ = await _made(provider)

        assert again == first
        assert await provider.list_owned(OWNER) == [first]

    async def test_creating_at_once_with_one_key_makes_one_sandbox(
        self, provider: SandboxProvider
    ) -> None:
        made = await asyncio.gather(*(_made(provider) for _ in range(5)))

        assert len({ref.id for ref, _ in made}) == 1
        assert len(await provider.list_owned(OWNER)) == 1

    async def test_owners_have_what_is_theirs(self, provider: SandboxProvider) -> None:
        mine, _ = await _made(provider)
        other, _ = await _made(provider, key="another")
        theirs, _ = await _made(provider, owner="somebody")

        owned = await provider.list_owned(OWNER)

        assert {ref.id for ref in owned} == {mine.id, other.id}
        assert [ref.id for ref in await provider.list_owned("somebody")] == [theirs.id]
        assert await provider.list_owned("nobody") == []
        assert await provider.owners() == {OWNER, "somebody"}

    async def test_a_destroyed_sandbox_is_gone(self, provider: SandboxProvider) -> None:
        ref, sandbox = await _made(provider)

        await provider.destroy(ref)

        assert (await provider.list_owned(OWNER), await provider.owners()) == ([], set())
        with pytest.raises(SandboxLostError):
            await provider.attach(ref)
        with pytest.raises(SandboxLostError):
            await sandbox.exec(["true"])
        with pytest.raises(SandboxLostError):
            await sandbox.read_file("/app/x")
        with pytest.raises(SandboxLostError):
            await sandbox.write_file("/app/x", b"")

    async def test_destroying_again_succeeds(self, provider: SandboxProvider) -> None:
        ref, _ = await _made(provider)
        await provider.destroy(ref)

        await provider.destroy(ref)

        assert await provider.list_owned(OWNER) == []

    async def test_destroying_from_two_places_at_once_leaves_nothing(
        self, provider: SandboxProvider
    ) -> None:
        """A teardown that is repeated and a janitor may meet."""
        ref, sandbox = await _made(provider)
        await sandbox.write_file("deep/er/x", b"1")

        done = await asyncio.gather(
            *(provider.destroy(ref) for _ in range(3)), return_exceptions=True
        )

        assert {type(error) for error in done if error} <= {SandboxUnavailableError}
        await provider.destroy(ref)
        assert (await provider.list_owned(OWNER), await provider.owners()) == ([], set())

    async def test_destroying_one_leaves_the_others(self, provider: SandboxProvider) -> None:
        ref, _ = await _made(provider)
        other, sandbox = await _made(provider, key="another")
        await sandbox.write_file("x", b"kept")

        await provider.destroy(ref)

        assert [left.id for left in await provider.list_owned(OWNER)] == [other.id]
        assert await sandbox.read_file("x") == b"kept"

    async def test_a_key_is_free_again_after_its_sandbox_is_gone(
        self, provider: SandboxProvider
    ) -> None:
        ref, sandbox = await _made(provider)
        await sandbox.write_file("x", b"old")
        await provider.destroy(ref)

        _, anew = await _made(provider)

        with pytest.raises(FileNotFoundError):
            await anew.read_file("x")

    async def test_a_written_file_is_read_back_by_another_attachment(
        self, provider: SandboxProvider
    ) -> None:
        ref, sandbox = await _made(provider)

        await sandbox.write_file("/app/deep/er/name with 日本", b"\0\xff\n")

        other = await provider.attach(ref)
        assert await other.read_file("/app/deep/er/name with 日本") == b"\0\xff\n"

    async def test_a_missing_file_is_said_to_be_missing(self, provider: SandboxProvider) -> None:
        _, sandbox = await _made(provider)

        with pytest.raises(FileNotFoundError):
            await sandbox.read_file("/app/none")

    async def test_a_file_over_the_limit_is_refused_with_both_sizes(
        self, provider: SandboxProvider
    ) -> None:
        _, sandbox = await _made(provider)
        await sandbox.write_file("/app/big", b"x" * 2000)

        with pytest.raises(ValueError, match=r"2,000.*1,999"):
            await sandbox.read_file("/app/big", max_bytes=1999)

    async def test_folders_travel_in_and_out(
        self, provider: SandboxProvider, tmp_path: Path
    ) -> None:
        _, sandbox = await _made(provider)
        source = tmp_path / "source"
        (source / "below").mkdir(parents=True)
        (source / "a").write_bytes(b"1")
        (source / "below" / "b").write_bytes(b"2")

        await sandbox.upload(source, "/app/kit")
        await sandbox.download("/app/kit", tmp_path / "back")

        assert await sandbox.read_file("/app/kit/below/b") == b"2"
        assert (tmp_path / "back" / "a").read_bytes() == b"1"
        assert (tmp_path / "back" / "below" / "b").read_bytes() == b"2"

    async def test_files_travel_in_and_out(self, provider: SandboxProvider, tmp_path: Path) -> None:
        _, sandbox = await _made(provider)
        (tmp_path / "one").write_bytes(b"1")

        await sandbox.upload(tmp_path / "one", "/app/uno")
        await sandbox.download("/app/uno", tmp_path / "back" / "eins")

        assert (tmp_path / "back" / "eins").read_bytes() == b"1"

    async def test_downloading_what_is_not_there_says_so(
        self, provider: SandboxProvider, tmp_path: Path
    ) -> None:
        _, sandbox = await _made(provider)

        with pytest.raises(FileNotFoundError):
            await sandbox.download("/app/none", tmp_path / "none")


class SandboxCommandsContract:
    """Commands run, are bounded, and die."""

    async def test_a_command_gets_input_and_environment(self, provider: SandboxProvider) -> None:
        _, sandbox = await _made(provider)

        done = await sandbox.exec(
            ["sh", "-c", 'cat; echo "$GREETING $NAME"; echo oops >&2; exit 3'],
            stdin=b"in ",
            env={"NAME": "Ada"},
        )

        assert done[:3] == (3, "in good day Ada\n", "oops\n")
        assert (done.timed_out, done.cut_bytes, done.left_open) == (False, 0, False)

    async def test_commands_and_files_share_one_place(self, provider: SandboxProvider) -> None:
        _, sandbox = await _made(provider)
        await sandbox.write_file("/app/kit/in", b"1")
        await sandbox.write_file("here", b"2")

        copied = await sandbox.exec(["cp", "in", "out"], cwd="/app/kit")
        listed = await sandbox.exec(["cat", "here"])

        assert (copied.exit_code, listed.stdout) == (0, "2")
        assert await sandbox.read_file("/app/kit/out") == b"1"

    async def test_a_program_that_is_not_there_is_a_result(self, provider: SandboxProvider) -> None:
        _, sandbox = await _made(provider)

        done = await sandbox.exec(["no-such-program"])

        assert done.exit_code in (126, 127)
        assert "no-such-program" in done.stderr

    async def test_a_command_is_killed_at_its_timeout(self, provider: SandboxProvider) -> None:
        _, sandbox = await _made(provider)
        begun = time.monotonic()

        done = await sandbox.exec(
            ["sh", "-c", "echo begun; sleep 300 & setsid sleep 300"],
            timeout=timedelta(seconds=0.5),
        )

        assert done.timed_out
        assert done.stdout == "begun\n"
        assert time.monotonic() - begun < 0.5 + _KILL_S

    async def test_canceling_a_command_returns_soon(self, provider: SandboxProvider) -> None:
        _, sandbox = await _made(provider)
        running = await _begun(sandbox)
        begun = time.monotonic()

        running.cancel()
        await asyncio.wait([running])

        assert running.cancelled()
        assert time.monotonic() - begun < _KILL_S

    async def test_a_background_child_does_not_delay_the_return(
        self, provider: SandboxProvider
    ) -> None:
        _, sandbox = await _made(provider)
        begun = time.monotonic()

        done = await sandbox.exec(["sh", "-c", "sleep 300 & echo done"])

        assert (done.exit_code, done.stdout, done.left_open) == (0, "done\n", True)
        assert time.monotonic() - begun < _KILL_S

    async def test_the_tail_of_a_long_output_is_kept(self, provider: SandboxProvider) -> None:
        _, sandbox = await _made(provider)

        done = await sandbox.exec(
            ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; printf 'the end \\377'"],
            max_output_bytes=1000,
        )

        assert done.cut_bytes == 3_000_009 - 1000
        assert done.stdout.startswith(f"[… {done.cut_bytes:,} bytes cut …]\nxxx")
        assert done.stdout.endswith("xxxthe end �")

    async def test_many_commands_run_at_once(self, provider: SandboxProvider) -> None:
        _, sandbox = await _made(provider)

        done = await asyncio.gather(
            *(sandbox.exec(["sh", "-c", f"echo {number}"]) for number in range(20))
        )

        assert [result.stdout for result in done] == [f"{number}\n" for number in range(20)]

    async def test_a_sandbox_in_use_can_be_destroyed(self, provider: SandboxProvider) -> None:
        ref, sandbox = await _made(provider)
        running = await _begun(sandbox)

        await provider.destroy(ref)

        with pytest.raises(SandboxLostError):
            await running
        assert await provider.list_owned(OWNER) == []
