"""A table as lines of text: aligned columns, and under a row a line of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.text import Text

_GAP = "  "


class Column(NamedTuple):
    """A column's title and which side it is aligned to."""

    title: str
    right: bool = False


class Row(NamedTuple):
    """A row's cells, and what stands under it across all columns."""

    cells: Sequence[Text | str]
    below: Text | None = None


def table(columns: Sequence[Column], rows: Sequence[Row]) -> Iterator[Text]:
    """The title line, then each row; columns are as wide as their widest cell."""
    cells = [[_text(cell) for cell in row.cells] for row in rows]
    titles = [Text(column.title, style="bold") for column in columns]
    widths = [max(cell.cell_len for cell in column) for column in zip(titles, *cells, strict=True)]
    yield _line(columns, titles, widths)
    for row, texts in zip(rows, cells, strict=True):
        yield _line(columns, texts, widths)
        if row.below is not None:
            yield Text("    ", no_wrap=True, overflow="ellipsis") + row.below


def fields(pairs: Sequence[tuple[str, Text | str]]) -> Iterator[Text]:
    """Names and values, a line each."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        yield Text(name.ljust(width) + _GAP, style="bright_black") + _text(value)


def _text(cell: Text | str) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def plain(lines: Sequence[str]) -> Iterator[Text]:
    """Words without anything around them, as another command takes them."""
    from agent_env.cli._words import printable

    for line in lines:
        yield Text(printable(line))


def _line(columns: Sequence[Column], cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for column, cell, width in zip(columns, cells, widths, strict=True):
        space = " " * (width - cell.cell_len)
        line.append(_GAP if line else "")
        line.append(space if column.right else "")
        line.append_text(cell)
        line.append("" if column.right else space)
    line.rstrip()
    return line
