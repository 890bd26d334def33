"""What local sandboxes see of ``/etc``."""

import os
from pathlib import Path

import pytest

from agent_env.sandboxes._machine_etc import machine_etc


@pytest.fixture
def source(tmp_path: Path) -> Path:
    etc = tmp_path / "etc"
    (etc / "ssl/private").mkdir(parents=True)
    (etc / "ssl/private").chmod(0o700)
    (etc / "ssl/private/key.pem").write_text("secret")
    (etc / "ssl/openssl.cnf").write_text("open")
    (etc / "ssl/only-mine").write_text("secret")
    (etc / "ssl/only-mine").chmod(0o600)
    (etc / "shadow").write_text("secret")
    (etc / "services").write_text("http 80/tcp")
    (etc / "alternatives").mkdir()
    (etc / "alternatives/editor").symlink_to("/usr/bin/env")
    (etc / "alternatives/broken").symlink_to("/nowhere/at/all")
    (etc / "localtime").symlink_to(tmp_path / "zone")
    (tmp_path / "zone").write_text("noon")
    return etc


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_only_what_everybody_may_read_of_the_files_that_are_meant_is_shown(
    tmp_path: Path, source: Path
) -> None:
    shown = machine_etc(tmp_path / "shown", source)

    assert names(shown) == {
        *("alternatives", "alternatives/editor", "ssl", "ssl/openssl.cnf", "services"),
        *("localtime", "hosts", "passwd", "group", "resolv.conf"),
    }


def test_links_lead_into_the_system_or_became_copies(tmp_path: Path, source: Path) -> None:
    shown = machine_etc(tmp_path / "shown", source)

    assert os.readlink(shown / "alternatives/editor") == os.path.realpath("/usr/bin/env")
    assert not (shown / "localtime").is_symlink()
    assert (shown / "localtime").read_text() == "noon"


def test_it_is_made_once_and_anew_when_the_machine_has_changed(
    tmp_path: Path, source: Path
) -> None:
    first = machine_etc(tmp_path / "shown", source)
    made_at = first.stat().st_mtime_ns

    assert machine_etc(tmp_path / "shown", source) == first
    assert first.stat().st_mtime_ns == made_at
    (source / "os-release").write_text("ID=other")
    second = machine_etc(tmp_path / "shown", source)
    assert second != first
    assert (second / "os-release").read_text() == "ID=other"
    assert {path.name for path in (tmp_path / "shown").iterdir()} == {first.name, second.name}
