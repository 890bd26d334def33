"""The pages of the documentation, and the blocks of code in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
HOW_TO = ROOT / "docs/how-to"
PAGES = [README, *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"# ([\w./-]+\.\w+)\n")
_TASK_LANGUAGES = ("json", "yaml", "toml")
_NO_TASKS = ("pyproject.toml", "episodes.toml")


class Block(NamedTuple):
    """A block of code in a page. A comment in its first line may name its file."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str | None:
        found = _NAME.match(self.text)
        return found[1] if found else None

    @property
    def file(self) -> str:
        return self.name or f"line_{self.line}.{self.language}"

    @property
    def is_task(self) -> bool:
        return self.language in _TASK_LANGUAGES and self.name not in _NO_TASKS

    @property
    def is_script(self) -> bool:
        return self.language == "python" and self.name is None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    text = text_of(page)
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in _BLOCK.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _BLOCK.sub("", text_of(page))


def section(page: Path, title: str) -> str:
    """What follows a heading, up to the next one."""
    _, found, rest = text_of(page).partition(f"\n### {title}\n")
    assert found, f"{page.name} has no section {title!r}"
    return re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]


def anchors(page: Path) -> set[str]:
    """What a link to a heading ends with."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def laid_out(page: Path, folder: Path) -> Path:
    """A folder with every file that a page shows: tasks, and what its blocks name."""
    for block in blocks(page):
        if block.name is not None or block.is_task:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    return folder
