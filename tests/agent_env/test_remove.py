"""Folders are removed whatever is in them."""

import os
import sys
from pathlib import Path

import pytest

from agent_env._remove import remove_tree


def test_a_folder_deeper_than_the_stack_and_than_any_path_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    depth = sys.getrecursionlimit() + 4000
    for _ in range(depth):
        os.mkdir("a", dir_fd=folder)
        below = os.open("a", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)

    remove_tree(top)

    assert os.listdir(tmp_path) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "top/below").mkdir(parents=True)
    (tmp_path / "top/link").symlink_to(tmp_path / "kept")
    (tmp_path / "top/below/link").symlink_to(tmp_path / "kept")

    remove_tree(tmp_path / "top")

    assert (tmp_path / "kept/file").exists()
    assert os.listdir(tmp_path) == ["kept"]


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")

    with pytest.raises(OSError, match=r"Not a directory|Too many"):
        remove_tree(tmp_path / "link")

    assert (tmp_path / "kept").is_dir()


def test_locked_folders_and_odd_names_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a/b/c").mkdir(parents=True)
    (top / "a/b/c/file").touch()
    Path(os.fsdecode(os.fsencode(top) + b"/\xff\n")).touch()
    os.mkfifo(top / "a/pipe")
    for name in ("a/b/c", "a/b", "a"):
        (top / name).chmod(0)

    remove_tree(top)

    assert not top.exists()


def test_removing_what_is_gone_succeeds(tmp_path: Path) -> None:
    remove_tree(tmp_path / "none")
