"""What others may do to an index's database while the product works on it."""

from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, make_url, text

from tests.end_to_end.conftest import Product

LOCK = {
    "sqlite": "BEGIN EXCLUSIVE",
    "postgresql": "LOCK TABLE runs, steps, run_groups IN ACCESS EXCLUSIVE MODE",
}


def execute(product: Product, statement: str, **values: object) -> None:
    """Execute a statement and commit it."""
    with _connected(product) as connection:
        connection.execute(text(statement), values)
        connection.commit()


@contextmanager
def locked(product: Product) -> Generator[None]:
    """Keep the index to oneself while entered."""
    with _connected(product) as connection:
        connection.exec_driver_sql(LOCK[connection.dialect.name])
        yield
        connection.rollback()


@contextmanager
def other_password(product: Product) -> Generator[str]:
    """Somebody gave the user of PostgreSQL another password while workers run; gives what is said.

    Whoever is connected is cut off: only that makes the password matter.
    """
    user, password = make_url(product.database).username, make_url(product.database).password
    with _connected(product) as connection:

        def set_password(found: str | None) -> None:
            connection.exec_driver_sql(f"ALTER ROLE {user} PASSWORD '{found}'")
            # Until then the old one lets in whoever connects again.
            connection.commit()
            # Who has no database yet is being let in, perhaps with the old one.
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE (datname = current_database() OR datname IS NULL)"
                " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            connection.commit()

        set_password(f"not {password}")
        try:
            yield "its server refused the user or the password"
        finally:
            set_password(password)


@contextmanager
def _connected(product: Product) -> Generator[Connection]:
    engine: Engine = create_engine(product.database, connect_args=_patience(product))
    try:
        with engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA foreign_keys = ON")
                connection.commit()
            yield connection
    finally:
        engine.dispose()


def _patience(product: Product) -> dict[str, object]:
    return {"timeout": 30} if product.database.startswith("sqlite") else {}
