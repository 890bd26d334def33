"""The settings of this machine, and where each value came from.

Later wins: default, the user's ``episodes.toml``, the project's (in the working directory or
above), ``EPISODES_*`` in the environment, options. Temporal's address is none of ours: see
``temporalio.envconfig``.
"""

import contextlib
import os
import platform
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import platformdirs
from pydantic import AfterValidator, Field

from agent_env import ids
from agent_env._data_files import read_data
from agent_env._database_url import has_secret, masked, read_url
from agent_env._model import EdgeModel, validated
from agent_env.errors import ConfigError, InvalidSpecError, unknown_name
from agent_env.task import Id

if TYPE_CHECKING:
    from sqlalchemy import URL

APP = "durable-episodes"
"""Name of our folders among the user's."""
FILE_NAME = "episodes.toml"
ENV_PREFIX = "EPISODES_"
TEST_PREFIX = "EPISODES_TEST_"
"""Variables that only the test suite reads."""
_ENV = "env:"
_FILE = "file:"
_MASK = "***"
_SECRETS = ("database", "explorer_token")
"""Settings that may be references."""


def _default_room() -> int:
    return max(8, 4 * (os.cpu_count() or 1))


class Settings(EdgeModel):
    """What a process needs to know of its machine. A composition root builds it once."""

    state_dir: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())] = Field(
        default_factory=lambda: platformdirs.user_state_path(APP)
    )
    """Folder of everything this machine keeps: sandboxes, artifacts, SQLite, embedded Temporal."""
    database: str | None = Field(default=None, repr=False)
    """SQLAlchemy URL of the run index, or where it is: ``env:NAME`` or ``file:PATH``. None means
    SQLite in ``state_dir``."""
    max_episodes: int = Field(default_factory=_default_room, ge=1)
    """Most episodes that run on this host at once. The default is 4 a CPU core, at least 8."""
    host: Id | None = None
    """Name of this host among the workers. None means one that is kept in ``state_dir``."""
    host_lost_after_s: float = Field(default=60, gt=0)
    """How long a host may not answer before its episodes begin again elsewhere, in seconds."""
    cancel_grace_s: float = Field(default=30, ge=0)
    """How long a canceled step may take to stop before it is abandoned, in seconds."""
    graceful_shutdown_s: float = Field(default=10, ge=0)
    """How long steps may go on when a worker is asked to stop, in seconds."""
    reconcile_every_s: float = Field(default=30, gt=0)
    """How often live runs are compared with Temporal, in seconds."""
    janitor_every_s: float = Field(default=60, gt=0)
    """How often a worker destroys what ended or lost episodes left behind, in seconds."""

    explorer_host: str = Field(default="127.0.0.1", min_length=1)
    """Address that the explorer listens on. One that other machines can reach needs a token."""
    explorer_port: int = Field(default=8321, ge=0, le=65535)
    """Port of the explorer; 0 means any that is free."""
    explorer_token: str | None = Field(default=None, repr=False)
    """What lets people into the explorer, or where it is: ``env:NAME`` or ``file:PATH``. None means
    that everybody may come in who can reach it."""
    explorer_names: str = ""
    """Names, with commas between, under which browsers reach the explorer beside this machine's."""
    explorer_read_only: bool = False
    """Whether nothing may be changed from the explorer."""
    temporal_ui: str | None = Field(default=None, pattern="^https?://[^ ]+$")
    """Address of Temporal's UI, for links to it. None means that of the embedded server."""

    @property
    def token(self) -> str | None:
        """The explorer's token itself.

        Raises:
            ConfigError: a reference leads nowhere.
        """
        if self.explorer_token is None:
            return None
        return _followed("explorer_token", self.explorer_token)

    @property
    def database_url(self) -> str:
        """The URL itself, with its password: for the database, not for a person.

        Raises:
            ConfigError: a reference leads nowhere, or what it leads to is not an SQLAlchemy URL.
        """
        return self._url().render_as_string(hide_password=False)

    def masked(self) -> dict[str, object]:
        """Each value as a person may see it: the database's URL without its secrets."""
        values = self.model_dump(mode="json")
        if self.database is None or not self.database.startswith((_ENV, _FILE)):
            values["database"] = masked(self._url())
        if self.explorer_token is not None and not _is_reference(self.explorer_token):
            values["explorer_token"] = _MASK
        return values

    def _url(self) -> "URL":
        # It takes longer to import than a command line may take to start.
        from sqlalchemy import URL

        if self.database is None:
            return URL.create("sqlite", database=str(self.state_dir / "episodes.sqlite"))
        try:
            return read_url(_followed("database", self.database))
        except ConfigError as error:
            raise ConfigError(f"database: {str(error).removeprefix('database: ')}") from None


class LoadedSettings(NamedTuple):
    """Settings, and for each of them where its value came from."""

    settings: Settings
    sources: Mapping[str, str]
    """``default``, a file's path, a variable's name or ``option``."""


def load_settings(
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> LoadedSettings:
    """Read the settings of this machine, user and project.

    Relative paths start at the file that names them, else at ``cwd``. An empty variable and an
    override of None count as not given.

    Args:
        overrides: Options of a command line, by setting.
        environ: Instead of this process's environment.
        cwd: Instead of this process's working directory.

    Raises:
        ConfigError: a file can't be read, a setting is unknown, or its value can't be used; names
            the file, variable or option.
    """
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    values: dict[str, object] = {}
    sources = dict.fromkeys(Settings.model_fields, "default")
    for layer in (*_files(cwd), _environment(environ), _options(overrides or {})):
        for label, name, value in layer.entries:
            values[name] = _rebased(name, value, layer.folder or cwd)
            sources[name] = label
    try:
        return LoadedSettings(validated(Settings, values), sources)
    except InvalidSpecError as error:
        raise ConfigError(
            "\n".join(
                f"{problem.where} (from {sources[problem.where]}): {problem.what}"
                for problem in error.problems
            )
        ) from None


def host_id(settings: Settings) -> str:
    """This host's name: the one that is set, else one made once and kept in ``state_dir``.

    Processes that ask at the same time get the same.

    Raises:
        ConfigError: ``state_dir`` can't be written, or what it holds is not a name.
    """
    if settings.host is not None:
        return settings.host
    kept = settings.state_dir / "host"
    try:
        if not kept.exists():
            _write_once(kept, ids.host_id(platform.node(), secrets.randbits(30)))
        name = kept.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"state_dir: {kept} can't be kept: {error}; name another folder with "
            f"{ENV_PREFIX}STATE_DIR"
        ) from None
    if problem := ids.id_problem(name):
        raise ConfigError(f"state_dir: {kept} holds no host name: {problem}; remove the file")
    return name


class _Layer(NamedTuple):
    """What one source says: its label for each setting, the setting, the value."""

    entries: list[tuple[str, str, object]]
    folder: Path | None = None
    """Where its relative paths start. None means the working directory."""


def _files(cwd: Path) -> list[_Layer]:
    user = platformdirs.user_config_path(APP) / FILE_NAME
    above = (folder / FILE_NAME for folder in (cwd, *cwd.parents))
    project = next((path for path in above if path.is_file()), None)
    return [_file(path) for path in (user, project) if path is not None and path.is_file()]


def _file(path: Path) -> _Layer:
    try:
        data = cast("dict[str, object]", read_data(path))  # TOML has no other top level
    except InvalidSpecError as error:
        raise ConfigError(str(error)) from None
    for name in data:
        if name not in Settings.model_fields:
            unknown = unknown_name("setting", name, Settings.model_fields)
            raise ConfigError(f"{path}: {unknown}")
    if _has_password(data.get("database")):
        raise ConfigError(
            f"{path}: database: holds a password; put the URL into a variable or a file of its "
            "own and write env:NAME or file:PATH"
        )
    token = data.get("explorer_token")
    if isinstance(token, str) and not _is_reference(token):
        raise ConfigError(
            f"{path}: explorer_token: is a secret; put it into a variable or a file of its own and "
            "write env:NAME or file:PATH"
        )
    return _Layer([(str(path), name, value) for name, value in data.items()], path.parent)


def _environment(environ: Mapping[str, str]) -> _Layer:
    known = {f"{ENV_PREFIX}{name.upper()}": name for name in Settings.model_fields}
    entries: list[tuple[str, str, object]] = []
    for variable, value in environ.items():
        if not variable.startswith(ENV_PREFIX) or variable.startswith(TEST_PREFIX):
            continue
        if variable not in known:
            raise ConfigError(unknown_name("variable", variable, known))
        if value:
            entries.append((variable, known[variable], value))
    return _Layer(entries)


def _options(overrides: Mapping[str, object]) -> _Layer:
    for name in overrides:
        if name not in Settings.model_fields:
            raise ConfigError(unknown_name("setting", name, Settings.model_fields))
    return _Layer(
        [("option", name, value) for name, value in overrides.items() if value is not None]
    )


def _rebased(name: str, value: object, folder: Path) -> object:
    """The value, its relative path made absolute."""
    if name == "state_dir" and isinstance(value, str | Path):
        return folder / Path(value).expanduser()
    if name in _SECRETS and isinstance(value, str) and value.startswith(_FILE):
        return f"{_FILE}{folder / Path(value.removeprefix(_FILE)).expanduser()}"
    return value


def _is_reference(value: str) -> bool:
    return value.startswith((_ENV, _FILE))


def _followed(setting: str, value: str) -> str:
    """What a reference leads to; anything else leads to itself."""
    if value.startswith(_ENV):
        variable = value.removeprefix(_ENV)
        if found := os.environ.get(variable):
            return found
        raise ConfigError(f"{setting}: the variable {variable} is not set; set it")
    if value.startswith(_FILE):
        path = Path(value.removeprefix(_FILE))
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{setting}: {path} can't be read: {error}") from None
    return value


def _has_password(database: object) -> bool:
    if not isinstance(database, str) or database.startswith((_ENV, _FILE)):
        return False
    try:
        return has_secret(read_url(database))
    except ConfigError:
        # Said when it is used; but what can't be read may hold one.
        return "@" in database


def _write_once(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all; the first of several writers wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)
