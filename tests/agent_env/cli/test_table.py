"""agent_env/cli/_table.py."""

from rich.text import Text

from agent_env.cli._table import Column, Row, fields, table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    lines = [
        line.plain
        for line in table(
            [Column("run"), Column("reward", right=True)],
            [Row(("日本", "1.000")), Row(("a-long-one", "-0.5"), Text("why"))],
        )
    ]

    assert lines == [
        "run         reward",
        "日本         1.000",
        "a-long-one    -0.5",
        "    why",
    ]


def test_names_are_aligned_and_values_are_whole() -> None:
    pairs: list[tuple[str, Text | str]] = [("a", "1"), ("long", "x" * 500)]

    assert [line.plain for line in fields(pairs)] == ["a     1", "long  " + "x" * 500]
