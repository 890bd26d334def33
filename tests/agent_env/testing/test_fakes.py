"""The fakes behave as the real things do."""

import asyncio
from datetime import timedelta

import pytest

from agent_env.errors import SandboxUnavailableError
from agent_env.sandboxes.base import ExecResult, SandboxProvider, SandboxSpec
from agent_env.testing import FakeSandboxProvider
from agent_env.testing.conformance import SandboxProviderContract

SPEC = SandboxSpec(type="fake", name="box")


class TestFakeSandboxProvider(SandboxProviderContract):
    @pytest.fixture
    def provider(self) -> SandboxProvider:
        return FakeSandboxProvider()


async def test_a_create_that_is_canceled_leaves_a_sandbox_for_teardown_to_find() -> None:
    provider = FakeSandboxProvider(create_delay=timedelta(hours=1))
    creating = asyncio.create_task(provider.create(SPEC, owner="run", key="k"))
    while not provider.live:
        await asyncio.sleep(0)

    creating.cancel()
    await asyncio.wait([creating])

    assert await provider.list_owned("run") == provider.live
    assert len(provider.live) == 1


async def test_destroying_fails_as_often_as_asked() -> None:
    provider = FakeSandboxProvider(fail_destroy_times=2)
    ref = await provider.create(SPEC, owner="run", key="k")
    for _ in range(2):
        with pytest.raises(SandboxUnavailableError):
            await provider.destroy(ref)

    await provider.destroy(ref)

    assert provider.live == []


async def test_commands_are_kept_and_answered() -> None:
    provider = FakeSandboxProvider(answer=lambda argv: ExecResult(len(argv), argv[0], ""))
    sandbox = await provider.attach(await provider.create(SPEC, owner="run", key="k"))

    done = await sandbox.exec(["echo", "x"])

    assert done == ExecResult(2, "echo", "")
    assert provider.commands == [("echo", "x")]
