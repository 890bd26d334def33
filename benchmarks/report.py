"""Puts measured figures into a page, between two marks."""

from pathlib import Path


def write_table(page: Path, name: str, rows: list[tuple[str, ...]]) -> None:
    """Replace the table between ``<!-- name -->`` and ``<!-- /name -->``.

    Args:
        page: A Markdown file that has both marks.
        name: Which table.
        rows: Header first.

    Raises:
        ValueError: the page lacks the marks.
    """
    text = page.read_text(encoding="utf-8")
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if start not in text or end not in text:
        raise ValueError(f"{page} lacks the marks {start} and {end}; put them where the table goes")
    header, *body = rows
    lines = [header, tuple("---" for _ in header), *body]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    before, after = text.split(start)[0], text.split(end)[1]
    page.write_text(f"{before}{start}\n{table}\n{end}{after}", encoding="utf-8")
