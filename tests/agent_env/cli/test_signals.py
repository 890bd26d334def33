"""agent_env/cli/_signals.py."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from agent_env.cli._exit import StoppedError
from agent_env.cli._signals import Interrupts


def never() -> str:
    raise AssertionError("nothing is left at once here")


async def test_a_signal_while_starting_cancels_and_is_told_as_stopped() -> None:
    cleaned: list[str] = []

    async def start() -> None:
        with Interrupts(signal.SIGUSR1, leave=never):
            try:
                os.kill(os.getpid(), signal.SIGUSR1)
                await asyncio.Event().wait()
            finally:
                cleaned.append("yes")

    with pytest.raises(StoppedError):
        await start()

    assert cleaned == ["yes"]


async def test_a_signal_once_ready_only_asks() -> None:
    with Interrupts(signal.SIGUSR1, leave=never) as interrupts:
        interrupts.ready()
        os.kill(os.getpid(), signal.SIGUSR1)

        async with asyncio.timeout(10):
            await interrupts.asked.wait()


async def test_a_cancel_that_came_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        with Interrupts(signal.SIGUSR1, leave=never):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_second_signal_leaves_at_once_whatever_hangs() -> None:
    code = """
import asyncio, os, signal, time
from agent_env.cli._signals import Interrupts

async def main():
    with Interrupts(signal.SIGINT, leave=lambda: "left") as interrupts:
        interrupts.ready()
        os.kill(os.getpid(), signal.SIGINT)
        await interrupts.asked.wait()
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            time.sleep(600)

asyncio.run(main())
"""

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )

    assert (done.returncode, done.stderr) == (130, "left\n")
