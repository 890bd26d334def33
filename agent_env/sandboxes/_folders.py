"""Where local sandboxes lie: a folder for each owner, a folder in it for each sandbox. Blocking.

An owner and a key may hold any characters, so folders are named by their hashes. The owner is
written down before its first sandbox is made: a half-made one is still found by its owner.
"""

import hashlib
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from agent_env._model import WireModel
from agent_env.results import SandboxRef
from agent_env.sandboxes.base import SandboxSpec

_OWNER = "owner"
_RECORD = "sandbox.json"
_TRIES = 5


class Record(WireModel):
    """What is known of a sandbox. Its file is written last: what has one is complete."""

    owner: str
    key: str
    created_at: datetime
    spec: SandboxSpec


class Folders:
    """All local sandboxes of a state folder.

    Args:
        folder: Where they lie; made when first needed.
        type: The provider's type, for references.
    """

    def __init__(self, folder: Path, type: str) -> None:
        self._folder = folder
        self._type = type

    def make(self, record: Record, fill: Callable[[Path], None]) -> SandboxRef:
        """Make a sandbox, or find the one that this owner and key have.

        Args:
            record: What it is to be.
            fill: Puts what a sandbox needs into its folder; may be called again on the same one.

        Raises:
            OSError: it could not be made.
        """
        owner = self._folder / _hash(record.owner)
        sandbox = owner / _hash(record.key)
        for tries_left in reversed(range(_TRIES)):
            try:
                self._make(owner, sandbox, record, fill)
                break
            except FileNotFoundError:
                # The owner's last other sandbox was destroyed just now, and its folder with it.
                if not tries_left:
                    raise
        return self._ref(sandbox)

    def path(self, ref: SandboxRef) -> Path | None:
        """The folder of a reference, there or not; None if it can't be one of ours."""
        owner, _, sandbox = ref.id.partition("/")
        is_ours = all(len(part) == _HASH_CHARS and part.isalnum() for part in (owner, sandbox))
        return self._folder / owner / sandbox if is_ours else None

    def owned(self, owner: str) -> list[SandboxRef]:
        """Every sandbox of an owner, half-made ones included."""
        return [self._ref(path) for path in _folders(self._folder / _hash(owner))]

    def owners(self) -> set[str]:
        """Every owner that has a sandbox."""
        found: set[str] = set()
        for folder in _folders(self._folder):
            if _folders(folder):
                with suppress(FileNotFoundError):
                    found.add((folder / _OWNER).read_text(encoding="utf-8"))
        return found

    def forget(self, sandbox: Path) -> None:
        """Remove what is kept of the owner of a removed sandbox, if it was the last."""
        note = sandbox.parent / _OWNER
        with suppress(FileNotFoundError):
            owner = note.read_text(encoding="utf-8")
            if _folders(sandbox.parent):
                return
            note.unlink()
            try:
                sandbox.parent.rmdir()
            except OSError:
                # Somebody makes a new one at this moment.
                _write(note, owner)

    def _make(
        self, owner: Path, sandbox: Path, record: Record, fill: Callable[[Path], None]
    ) -> None:
        if is_complete(sandbox):
            return
        owner.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(owner / _OWNER, record.owner)
        sandbox.mkdir(mode=0o700, exist_ok=True)
        if not (owner / _OWNER).exists():
            _write(owner / _OWNER, record.owner)
        fill(sandbox)
        _write(sandbox / _RECORD, record.model_dump_json(), keep=True)

    def _ref(self, sandbox: Path) -> SandboxRef:
        try:
            record = read_record(sandbox)
            name, created_at = record.spec.name, record.created_at
        except (OSError, ValidationError):
            # Half-made: all that is needed is to find it again.
            name, created_at = sandbox.name, datetime.now(UTC)
        return SandboxRef(
            type=self._type,
            id=f"{sandbox.parent.name}/{sandbox.name}",
            name=name,
            created_at=created_at,
        )


def is_complete(sandbox: Path) -> bool:
    """Whether a folder holds a sandbox that can be used."""
    return (sandbox / _RECORD).exists()


def read_record(sandbox: Path) -> Record:
    """What is known of a sandbox.

    Raises:
        OSError: it is gone or half-made.
    """
    return Record.model_validate_json((sandbox / _RECORD).read_bytes())


def close(sandbox: Path) -> None:
    """Make a sandbox half-made: nothing can be started in it any more."""
    (sandbox / _RECORD).unlink(missing_ok=True)


_HASH_CHARS = 32


def _hash(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:_HASH_CHARS]


def _folders(path: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(path) if entry.is_dir()]
    except FileNotFoundError:
        return []


def _write(path: Path, text: str, *, keep: bool = False) -> None:
    """Write a file at once or not at all; one that is there stays if ``keep``."""
    whole = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    whole.write_text(text, encoding="utf-8")
    try:
        if not keep:
            whole.replace(path)
            return
        with suppress(FileExistsError):
            os.link(whole, path)
    finally:
        whole.unlink(missing_ok=True)
