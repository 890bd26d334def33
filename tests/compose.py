"""What docker-compose.yml says, as the tests read it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML
from sqlalchemy import URL, make_url

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker-compose.yml"
SECRETS = {"POSTGRES_PASSWORD": "correct/horse@battery%staple", "EXPLORER_TOKEN": "t" * 24}
"""A good value of each variable that .env holds."""
IMAGE = "durable-episodes"


def services() -> dict[str, dict[str, Any]]:
    """The services, by name, with their variables put in."""
    read: Any = YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))
    return {name: _filled(service) for name, service in read["services"].items()}


def ours() -> dict[str, dict[str, Any]]:
    """Those that run this project's image."""
    return {name: each for name, each in services().items() if each["image"] == IMAGE}


def worker_environ(state_dir: Path, database: URL, temporal: str) -> dict[str, str]:
    """What a worker is given, with the folder, the database and the server of here."""
    given: dict[str, str] = ours()["worker"]["environment"]
    url = make_url(given["EPISODES_DATABASE"]).set(
        username=database.username,
        host=database.host,
        port=database.port,
        database=database.database,
    )
    return {
        **given,
        "EPISODES_STATE_DIR": str(state_dir),
        "EPISODES_DATABASE": str(url),
        "PGPASSWORD": database.password or "",
        "TEMPORAL_ADDRESS": temporal,
    }


def variables() -> set[str]:
    """Names of all that the file takes from .env."""
    return set(re.findall(r"(?<!\$)\$\{(\w+)", FILE.read_text(encoding="utf-8")))


def _filled(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(r"(?<!\$)\$\{(\w+):\?[^}]*\}", lambda found: SECRETS[found[1]], value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        return {key: _filled(item) for key, item in items.items()}
    if isinstance(value, list):
        return [_filled(item) for item in cast("list[Any]", value)]
    return value
