import concurrent.futures.thread  # noqa: F401  # pyright: ignore[reportUnusedImport] - loaded late else, when we may not read it
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent_env.steps._work_dirs import WorkDirs

_NOBODY = 65534


@pytest.fixture
def dirs(tmp_path: Path) -> WorkDirs:
    return WorkDirs(tmp_path / "work")


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of somebody for whom permissions count, and we are them while the test runs."""
    with TemporaryDirectory() as folder:
        if os.geteuid() != 0:
            yield Path(folder)
            return
        os.chown(folder, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "work").rglob("*"))


def test_ids_that_are_no_file_names_get_a_folder_of_their_own(
    dirs: WorkDirs, tmp_path: Path
) -> None:
    ids = ["../up", "a/b c", "日本", "x" * 200, ".."]

    made = {dirs.make("run", step_id, 1) for step_id in ids}

    assert len(made) == len(ids)
    assert all(tmp_path / "work" in folder.resolve().parents for folder in made)


def test_what_a_dead_worker_left_of_an_attempt_is_gone(dirs: WorkDirs) -> None:
    folder = dirs.make("run", "step", 1)
    (folder / "litter").write_text("from before", encoding="utf-8")

    again = dirs.make("run", "step", 1)

    assert again == folder
    assert list(again.iterdir()) == []


async def test_removing_the_last_attempt_removes_the_runs_folder(
    dirs: WorkDirs, tmp_path: Path
) -> None:
    first, second = dirs.make("run", "a", 1), dirs.make("run", "b", 1)

    await dirs.remove(first)
    assert list(first.parent.iterdir()) == [second]
    await dirs.remove(second)

    assert left(tmp_path) == []


async def test_folders_that_nobody_may_enter_are_removed(unprivileged: Path) -> None:
    dirs = WorkDirs(unprivileged)
    folder = dirs.make("run", "step", 1)
    (folder / "closed/inner").mkdir(parents=True)
    (folder / "closed/inner/file").write_text("x", encoding="utf-8")
    (folder / "closed/link").symlink_to("/")
    (folder / "closed/inner").chmod(0)
    (folder / "closed").chmod(0)
    folder.chmod(0o500)

    await dirs.remove(folder)

    assert os.listdir(unprivileged) == []


async def test_a_link_out_of_the_folder_is_removed_and_not_followed(
    dirs: WorkDirs, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    folder = dirs.make("run", "step", 1)
    (folder / "link").symlink_to(outside)

    await dirs.remove(folder)

    assert os.stat(outside).st_mode & 0o777 == 0o500
    assert left(tmp_path) == []


def test_a_start_is_marked_once_for_each_attempt(dirs: WorkDirs, tmp_path: Path) -> None:
    assert dirs.mark_started("run", "step", 1)

    assert not WorkDirs(tmp_path / "work").mark_started("run", "step", 1)
    assert dirs.mark_started("run", "step", 2)


def test_cleaning_removes_all_of_one_run_and_nothing_of_another(
    dirs: WorkDirs, tmp_path: Path
) -> None:
    dirs.make("run", "step", 1)
    dirs.mark_started("run", "step", 1)
    other = dirs.make("other", "step", 1)

    dirs.clean("run")
    dirs.clean("no such run")

    assert set(left(tmp_path)) == {other, other.parent, other.parent.with_suffix(".run")}


def test_each_runs_folder_is_found_with_the_runs_id(dirs: WorkDirs) -> None:
    assert dirs.found() == []
    made = dirs.make("日本/../x", "step", 1)
    dirs.mark_started("other", "step", 1)

    found = {each.run_id: each for each in dirs.found()}

    assert set(found) == {"日本/../x", "other"}
    assert found["日本/../x"].name == made.parent.name
    assert abs((datetime.now(UTC) - found["other"].changed_at).total_seconds()) < 60


def test_a_folder_of_nobody_goes_by_its_own_name(dirs: WorkDirs, tmp_path: Path) -> None:
    folder = dirs.make("run", "step", 1).parent
    folder.with_suffix(".run").write_text("", encoding="utf-8")  # cut off by a power cut

    (found,) = dirs.found()

    assert (found.run_id, found.name) == (folder.name, folder.name)
    dirs.clean_named(found.name)
    assert left(tmp_path) == []


def test_a_note_without_a_folder_is_found_and_removed(dirs: WorkDirs, tmp_path: Path) -> None:
    folder = dirs.make("run", "step", 1)
    folder.rmdir()
    folder.parent.rmdir()

    (found,) = dirs.found()
    dirs.clean_named(found.name)

    assert found.run_id == "run"
    assert left(tmp_path) == []
