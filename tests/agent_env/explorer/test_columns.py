"""Which columns a list of runs shows."""

from agent_env.explorer import columns
from agent_env.explorer.queries import RunsQuery
from agent_env.runs.lists import RunSort

REWARD = next(column for column in columns.COLUMNS if column.name == "reward")


def names(asked: str | None) -> tuple[str, ...]:
    return tuple(column.name for column in columns.shown(asked))


def test_the_usual_columns_are_shown_unless_others_are_asked_for() -> None:
    assert names(None) == columns.USUAL
    assert names("host, reward") == ("run", "reward", "host")


def test_unknown_columns_are_left_out_and_the_run_is_always_there() -> None:
    assert names("reward,<script>") == ("run", "reward")
    assert names("nothing") == columns.USUAL


def test_a_click_sorts_by_the_most_first_and_a_second_turns_it_round() -> None:
    asked = RunsQuery.model_validate({})
    best = RunsQuery.model_validate({"sort": "-reward"})

    assert columns.sort_after_click(REWARD, asked) is RunSort.BEST
    assert columns.sort_after_click(REWARD, best) is RunSort.WORST
    assert columns.direction(REWARD, asked) is None
    assert columns.direction(REWARD, best) == "descending"
