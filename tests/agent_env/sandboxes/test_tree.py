"""No path leads out of a tree, whatever somebody hostile put into it."""

import os
from pathlib import Path

import pytest

from agent_env.sandboxes._tree import Tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "home/agent").mkdir(parents=True)
    (tmp_path / "secret").write_text("hidden")
    return root


@pytest.fixture
def home(root: Path) -> Path:
    return root / "home/agent"


@pytest.fixture
def tree(root: Path) -> Tree:
    return Tree(root, home="/home/agent", uid=None)


def test_relative_paths_start_at_home(tree: Tree, root: Path) -> None:
    tree.write("a/b", b"1")

    assert tree.read("/home/agent/a/b", 10) == b"1"
    assert (root / "home/agent/a/b").read_bytes() == b"1"


@pytest.mark.parametrize("path", ["../../../../../../secret", "/../secret", "/a/../../secret"])
def test_the_root_is_its_own_parent(tree: Tree, root: Path, path: str) -> None:
    (root / "a").mkdir()

    with pytest.raises(FileNotFoundError):
        tree.read(path, 10)
    tree.write(path, b"inside")

    assert (root / "secret").read_bytes() == b"inside"
    assert (root.parent / "secret").read_text() == "hidden"


@pytest.mark.parametrize("climb", ["", "../" * 40])
def test_links_are_followed_inside_the_root(tree: Tree, root: Path, home: Path, climb: str) -> None:
    outside = root.parent
    (home / "file").symlink_to(f"{climb}{outside}/secret")
    (home / "folder").symlink_to(f"{climb}{outside}")

    for path in ("file", "folder/secret"):
        with pytest.raises(FileNotFoundError):
            tree.read(path, 10)
    tree.write("file", b"inside")

    assert tree.read("folder/secret", 10) == b"inside"
    assert (outside / "secret").read_text() == "hidden"


def test_links_inside_the_root_work(tree: Tree, root: Path, home: Path) -> None:
    tree.write("/data/x", b"1")
    (home / "absolute").symlink_to("/data")
    (home / "relative").symlink_to("../../data/x")

    assert tree.read("absolute/x", 10) == b"1"
    assert tree.read("relative", 10) == b"1"
    assert tree.on_host("absolute") == root / "data"


def test_a_loop_of_links_is_an_error(tree: Tree, home: Path) -> None:
    (home / "a").symlink_to("b")
    (home / "b").symlink_to("a")

    with pytest.raises(OSError, match="Too many levels"):
        tree.read("a", 10)


@pytest.mark.parametrize("path", ["pipe", "/home", "/"])
def test_only_regular_files_are_read(tree: Tree, home: Path, path: str) -> None:
    os.mkfifo(home / "pipe")

    with pytest.raises(ValueError, match="not a regular file"):
        tree.read(path, 10)


def test_a_written_file_replaces_what_was_there(tree: Tree, home: Path) -> None:
    os.mkfifo(home / "pipe")
    (home / "mine").write_text("kept open")
    os.link(home / "mine", home / "other name")
    held = (home / "mine").open("r+")

    tree.write("pipe", b"1")
    tree.write("mine", b"2")
    with held:
        held.write("changed")

    assert tree.read("pipe", 10) == b"1"
    assert tree.read("mine", 10) == b"2"
    assert (home / "other name").read_text().startswith("changed")


@pytest.mark.parametrize("path", ["/usr/bin/x", "/etc/passwd", "/proc/x", "/dev/x", "/bin", "/"])
def test_what_belongs_to_the_system_is_not_written(tree: Tree, root: Path, path: str) -> None:
    with pytest.raises(OSError, match="read-only"):
        tree.write(path, b"")

    assert os.listdir(root) == ["home"]


def test_a_folder_comes_out_without_what_leads_elsewhere(
    tree: Tree, home: Path, tmp_path: Path
) -> None:
    tree.write("a/file", b"1")
    (home / "a/in").symlink_to("/home/agent/a/file")
    (home / "a/out").symlink_to(tmp_path / "secret")
    (home / "a/up").symlink_to("..")
    os.mkfifo(home / "a/pipe")

    tree.copy_out("a", tmp_path / "back")

    assert sorted(os.listdir(tmp_path / "back")) == ["file", "in"]
    assert (tmp_path / "back/in").read_bytes() == b"1"
    assert not (tmp_path / "back/in").is_symlink()


def test_a_folder_goes_in_with_its_links_and_modes(tree: Tree, home: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "run").write_text("x")
    (source / "run").chmod(0o4750)
    (source / "link").symlink_to("/etc/passwd")

    tree.copy_in(source, "kit")
    tree.copy_in(source, "kit")

    assert sorted(os.listdir(home / "kit")) == ["empty", "link", "run"]
    assert os.readlink(home / "kit/link") == "/etc/passwd"
    assert (home / "kit/run").stat().st_mode & 0o7777 == 0o750


def test_no_file_is_left_open(tree: Tree, home: Path) -> None:
    before = os.listdir("/proc/self/fd")
    (home / "loop").symlink_to("loop")

    for path in ("a/b/c", "loop", "none/x", "/usr/x"):
        try:
            tree.write(path, b"1")
            tree.read(path, 0)
        except (OSError, ValueError):
            continue

    assert os.listdir("/proc/self/fd") == before
