import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_env.artifacts import ArtifactStore
from agent_env.errors import InvalidSpecError


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script, a file with a long and foreign name, an empty folder and a link."""
    root = tmp_path / "folder"
    (root / "empty").mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin/run.sh").write_text("#!/bin/sh\necho hello\n", encoding="utf-8")
    (root / "bin/run.sh").chmod(0o755)
    (root / ("日本" * 40 + ".txt")).write_text("long", encoding="utf-8")
    (root / "data").write_bytes(bytes(range(256)) * 100)
    (root / "link").symlink_to("bin/run.sh")
    return root


def stored(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "store").rglob("*.*"))


def listing(root: Path) -> dict[str, tuple[str, object]]:
    """What a folder holds, as far as an artifact keeps it."""
    found: dict[str, tuple[str, object]] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", None)
        else:
            found[name] = (f"file {path.stat().st_mode & 0o100:o}", path.read_bytes())
    return found


def test_what_is_extracted_is_what_was_put(
    store: ArtifactStore, folder: Path, tmp_path: Path
) -> None:
    ref = store.put(folder)

    store.extract(ref, tmp_path / "out/deep")

    assert listing(tmp_path / "out/deep") == listing(folder)
    assert os.access(tmp_path / "out/deep/bin/run.sh", os.X_OK)


def test_the_reference_is_the_digest_of_the_one_file_that_is_kept(
    store: ArtifactStore, folder: Path, tmp_path: Path
) -> None:
    ref = store.put(folder)

    (file,) = stored(tmp_path)
    assert ref == "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
    assert file.stem == ref.removeprefix("sha256:")


def test_the_digest_does_not_depend_on_times_and_permissions(
    store: ArtifactStore, tmp_path: Path
) -> None:
    refs: set[str] = set()
    for number in (0, 1):
        root = tmp_path / f"made-{number}"
        root.mkdir(mode=0o700 if number else 0o755)
        (root / "file").write_text("the same", encoding="utf-8")
        (root / "file").chmod(0o600 if number else 0o664)
        os.utime(root / "file", (number, number))
        refs.add(store.put(root))

    assert len(refs) == 1


def test_the_digest_does_not_depend_on_the_order_in_which_files_are_listed(
    store: ArtifactStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path.iterdir

    def forward(path: Path) -> Iterator[Path]:
        return iter(sorted(listed(path)))

    def backward(path: Path) -> Iterator[Path]:
        return iter(sorted(listed(path), reverse=True))

    refs: set[str] = set()
    for iterdir in (forward, backward):
        monkeypatch.setattr(Path, "iterdir", iterdir)
        refs.add(store.put(folder))

    assert len(refs) == 1


def test_the_digest_is_the_same_on_every_machine(store: ArtifactStore, tmp_path: Path) -> None:
    root = tmp_path / "fixed"
    (root / "sub").mkdir(parents=True)
    (root / "sub/ü.txt").write_text("same everywhere\n", encoding="utf-8")

    assert store.put(root) == (
        "sha256:5fb40afc3c0ab5f7a1a97137445a4fcc6cb6bb30e51a18b585319f888de577d8"
    )


@pytest.mark.parametrize("change", ["content", "name", "executable", "link", "empty folder"])
def test_any_change_of_the_content_changes_the_digest(
    store: ArtifactStore, folder: Path, change: str
) -> None:
    before = store.put(folder)

    match change:
        case "content":
            (folder / "data").write_bytes(b"other")
        case "name":
            (folder / "data").rename(folder / "date")
        case "executable":
            (folder / "data").chmod(0o755)
        case "link":
            (folder / "link").unlink()
            (folder / "link").symlink_to("data")
        case _:
            (folder / "empty").rmdir()

    assert store.put(folder) != before


def test_putting_the_same_content_again_writes_nothing(
    store: ArtifactStore, folder: Path, tmp_path: Path
) -> None:
    ref = store.put(folder)
    (file,) = stored(tmp_path)
    before = file.stat()
    copy = shutil.copytree(folder, tmp_path / "copy", symlinks=True)

    again = store.put(Path(copy))

    assert (again, stored(tmp_path)) == (ref, [file])
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_many_putting_at_once_keep_one_whole_file(folder: Path, tmp_path: Path) -> None:
    def put(_: int) -> str:
        return ArtifactStore(tmp_path / "store").put(folder)

    with ThreadPoolExecutor(8) as threads:
        refs = set(threads.map(put, range(8)))

    (file,) = stored(tmp_path)
    assert refs == {"sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()}


def test_a_put_that_fails_leaves_nothing_behind(
    store: ArtifactStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        store.put(folder)

    assert stored(tmp_path) == []


def test_one_file_is_an_artifact_too(store: ArtifactStore, folder: Path, tmp_path: Path) -> None:
    ref = store.put(folder / "bin/run.sh")

    store.extract(ref, tmp_path / "out")

    assert listing(tmp_path / "out") == {
        "run.sh": ("file 100", (folder / "bin/run.sh").read_bytes())
    }


def test_extracting_again_restores_what_was_changed(
    store: ArtifactStore, folder: Path, tmp_path: Path
) -> None:
    ref = store.put(folder)
    store.extract(ref, tmp_path / "out")
    (tmp_path / "out/data").write_bytes(b"edited")

    store.extract(ref, tmp_path / "out")

    assert listing(tmp_path / "out") == listing(folder)


def test_a_folder_that_is_not_there_is_named(store: ArtifactStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*/missing"):
        store.put(tmp_path / "missing")


@pytest.mark.parametrize(
    "ref",
    ["sha256:" + "0" * 64, "sha256:../../etc", "sha256:" + "A" * 64, "0" * 64, "md5:1", ""],
)
def test_an_artifact_that_is_not_there_is_named_with_the_store(
    store: ArtifactStore, tmp_path: Path, ref: str
) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        store.extract(ref, tmp_path / "out")

    assert repr(ref) in str(caught.value)
    assert str(tmp_path / "store") in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "bin/../../outside"])
def test_a_link_out_of_the_folder_is_refused(
    store: ArtifactStore, folder: Path, tmp_path: Path, target: str
) -> None:
    (folder / "escape").symlink_to(target)

    with pytest.raises(InvalidSpecError, match=r"escape.*links to") as caught:
        store.put(folder)

    assert target in str(caught.value)
    assert stored(tmp_path) == []


def test_a_pipe_is_refused(store: ArtifactStore, folder: Path) -> None:
    os.mkfifo(folder / "pipe")

    with pytest.raises(InvalidSpecError, match=r"pipe: is a socket, a pipe or a device"):
        store.put(folder)


def test_a_file_of_the_store_that_somebody_made_cannot_write_outside(
    store: ArtifactStore, tmp_path: Path
) -> None:
    forged = tmp_path / "forged.tar"
    with tarfile.open(forged, "w") as archive:
        archive.addfile(tarfile.TarInfo("../escaped"))
    digest = hashlib.sha256(forged.read_bytes()).hexdigest()
    (tmp_path / "store/sha256").mkdir(parents=True)
    forged.rename(tmp_path / f"store/sha256/{digest}.tar")

    with pytest.raises(tarfile.OutsideDestinationError):
        store.extract(f"sha256:{digest}", tmp_path / "out/deep")

    assert not (tmp_path / "out/escaped").exists()
