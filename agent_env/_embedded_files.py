"""What the embedded server leaves in the state folder, and who wrote it."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from agent_env._locks import FileLock
from agent_env._model import WireModel

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ProcessMark(WireModel):
    """One process, told from any other that gets the same number later."""

    pid: int
    started: str
    """Boot of the machine and clock tick the process started at."""

    @classmethod
    def of(cls, pid: int) -> ProcessMark | None:
        """The process that has this number now; None if there is none, or it has ended."""
        try:
            # The name in parentheses may hold spaces and parentheses; fields are counted after it.
            fields = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            )
            boot = _BOOT_ID.read_text(encoding="ascii").strip()
        except OSError:
            return None
        state, start_tick = fields[0], fields[19]
        return None if state in "ZX" else cls(pid=pid, started=f"{boot}:{start_tick}")

    @property
    def is_alive(self) -> bool:
        """Whether that very process runs."""
        return ProcessMark.of(self.pid) == self


class Ports(WireModel):
    """Where a server listens, on 127.0.0.1."""

    port: int
    """gRPC: what clients connect to."""
    ui_port: int
    """The Temporal UI, over HTTP."""


class ServerRecord(Ports):
    """The server that answers for a state folder."""

    process: ProcessMark
    supervisor: ProcessMark
    started_at: datetime
    version: str
    """Of the distribution that ships the server."""

    @property
    def pid(self) -> int:
        """Of the server."""
        return self.process.pid

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def ui_url(self) -> str:
        """Where a browser finds the Temporal UI."""
        return f"http://127.0.0.1:{self.ui_port}"


class ServerFiles:
    """The files of the embedded server of one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = (state_dir / "temporal").absolute()
        self.database = self.folder / "temporal.db"
        self.log = self.folder / "server.log"
        self._record = self.folder / "server.json"
        self._ports = self.folder / "ports.json"

    def start_lock(self) -> FileLock:
        """Held while one user looks for the server or starts it."""
        return FileLock(self.folder / "start.lock")

    def user_lock(self) -> FileLock:
        """Held by each user for as long as it needs the server."""
        return FileLock(self.folder / "users.lock", shared=True)

    def last_user_lock(self) -> FileLock:
        """Free only when there is no user; whoever has it keeps new ones waiting."""
        return FileLock(self.folder / "users.lock")

    def supervisor_lock(self) -> FileLock:
        """Held by the supervisor all its life: there is one, or the lock is free."""
        return FileLock(self.folder / "supervisor.lock")

    def running(self) -> ServerRecord | None:
        """The server that runs; None when there is none or it is just being restarted."""
        try:
            record = ServerRecord.model_validate_json(self._record.read_bytes())
        except (OSError, ValidationError):
            return None
        return record if record.process.is_alive and record.supervisor.is_alive else None

    def list_running(self, record: ServerRecord) -> None:
        """Say that this server answers, and remember its ports for the next one."""
        _replace(self._ports, Ports(port=record.port, ui_port=record.ui_port))
        _replace(self._record, record)

    def unlist(self) -> None:
        """Say that no server answers any more."""
        self._record.unlink(missing_ok=True)

    def last_ports(self) -> Ports | None:
        """Where the last server listened."""
        try:
            return Ports.model_validate_json(self._ports.read_bytes())
        except (OSError, ValidationError):
            return None

    def log_tail(self, limit: int = 1000) -> str:
        """The end of the server's log, at most ``limit`` bytes."""
        try:
            return self.log.read_bytes()[-limit:].decode(errors="replace").strip()
        except OSError:
            return ""


def _replace(path: Path, content: WireModel) -> None:
    """Write the whole file or leave the old one: readers take no lock."""
    part = path.with_suffix(".part")
    part.write_text(content.model_dump_json(), encoding="utf-8")
    os.replace(part, path)
