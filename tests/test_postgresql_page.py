"""The page on PostgreSQL is true: what it says to type is typed, one after the other."""

import os
import subprocess
import sys
from pathlib import Path

from agent_env.runs.schema import HEAD
from tests.pages import HOW_TO, blocks
from tests.postgres import PostgresServer

PAGE = HOW_TO / "postgresql.md"


def test_what_the_page_says_to_type_works(postgres: PostgresServer, tmp_path: Path) -> None:
    lines = "".join(block.text for block in blocks(PAGE) if block.language == "sh")
    script = lines.replace("@db.example:5432/", f"@127.0.0.1:{postgres.port}/")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("EPISODES_", "TEMPORAL_"))
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), str(postgres.programs), kept["PATH"]])

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**kept, **postgres.environment, "PATH": path, "EPISODES_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"/database-url  is at {HEAD}" in done.stdout
    assert "horse" not in done.stdout + done.stderr
    assert (tmp_path / "database-url").stat().st_mode & 0o077 == 0
