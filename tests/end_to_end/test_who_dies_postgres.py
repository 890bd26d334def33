"""PostgreSQL is killed or stopped and started again: steps go on, begin and finish wait."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Product
from tests.end_to_end.test_who_dies_index import (
    Played,
    assert_log_is_short,
    assert_no_ghost,
    assert_start_is_refused,
)
from tests.end_to_end.who_dies import worker
from tests.postgres import PostgresServer


@pytest.mark.parametrize("kind", ["postgresql"])
@pytest.mark.parametrize("ends", [PostgresServer.kill, PostgresServer.stop])
async def test_away_for_a_while(
    product: Product,
    postgres: PostgresServer,
    ends: Callable[[PostgresServer], None],
    tmp_path: Path,
) -> None:
    with worker(product, max_episodes=1) as serving:
        played = Played(product, tmp_path)
        await played.begin()
        ends(postgres)
        await assert_start_is_refused(product)
        await played.waits(serving)
        assert_log_is_short(serving)
        postgres.start()

        await played.ends()
        await assert_no_ghost(product)
