"""Workers that ``launcher.py`` starts, for tests that need other conditions than a user has."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.agent_env.cli.stage import until
from tests.end_to_end.conftest import ROOT, Product


@contextmanager
def launched(
    product: Product,
    *options: str,
    state_dir: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Generator[subprocess.Popen[bytes]]:
    """A worker in a process of its own, ready when entered, ended by SIGTERM if it still runs."""
    state_dir = state_dir or product.state_dir
    log = state_dir / "launched.log"
    with log.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.end_to_end.launcher", *options],
            cwd=ROOT,
            env={
                **os.environ,
                **product.environ(state_dir),
                "EPISODES_HOST_LOST_AFTER_S": "3",
                **(env or {}),
            },
            stderr=said,
        )
        offset = said.tell()
    try:
        until(lambda: b"serving" in log.read_bytes()[offset:] or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=60)
            finally:
                process.kill()
