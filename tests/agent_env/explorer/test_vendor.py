"""Files of other projects are what their README says they are."""

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = [ROOT / "agent_env/explorer/static/vendor", ROOT / "tests/end_to_end/vendor"]
_LINE = re.compile(
    r"^\| `([^`]+)` \| .+ \| ([\d.]+) \| ([\w-]+[\w.-]*) \| `([0-9a-f]{64})` \|$", re.M
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_every_file_is_listed_with_its_version_license_and_sum(folder: Path) -> None:
    listed = {
        name: (version, digest)
        for name, version, _, digest in _LINE.findall(
            (folder / "README.md").read_text(encoding="utf-8")
        )
    }
    files = {path.name: path for path in folder.iterdir() if path.name != "README.md"}

    assert listed.keys() == files.keys()
    for name, (version, digest) in listed.items():
        assert version in name
        assert hashlib.sha256(files[name].read_bytes()).hexdigest() == digest


def test_pages_name_the_vendored_files_there_are() -> None:
    base = (ROOT / "agent_env/explorer/templates/base.html").read_text(encoding="utf-8")
    named = re.findall(r"/static/vendor/([^\"]+)", base)

    assert named
    assert all((FOLDERS[0] / name).is_file() for name in named)
