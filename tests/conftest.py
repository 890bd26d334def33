"""What every test shares."""

from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.postgres import PostgresServer, running_postgres

# The same examples on every machine and every run: a failure here is a failure there.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database",
        choices=("sqlite", "postgresql"),
        default="sqlite",
        help="where the whole product keeps its run index, in tests that don't care",
    )


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    """The database that a run index is kept in."""
    return str(request.config.getoption("--database"))


@pytest.fixture(scope="session")
def postgres_of_the_session() -> Generator[PostgresServer]:
    """One server for all tests of this process."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_of_the_session: PostgresServer) -> PostgresServer:
    """A server that runs, also after a test that has killed it."""
    postgres_of_the_session.start()
    return postgres_of_the_session
