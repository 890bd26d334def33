"""Reads the URL of a run index's database without ever telling what is secret in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_env.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import URL

NO_URL = "is not an SQLAlchemy URL; write sqlite:////PATH or postgresql+psycopg://USER:PASSWORD@HOST/NAME"
_MASK = "***"
_SECRET_WORDS = ("password", "passwd", "secret", "token", "key")


def read_url(text: str) -> URL:
    """The URL that a text is.

    Raises:
        ConfigError: it is none, or its password is written so that parts of it would be taken for
            something else. The message, which starts with a verb, holds nothing of the text.
    """
    # It takes longer to import than a command line may take to start.
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # their texts have the URL, or its port, in them
        raise ConfigError(NO_URL) from None
    if "@" in (url.host or ""):
        raise ConfigError("has an @ in its user or password; write %40 for it")
    return url


def masked(url: URL) -> str:
    """The URL as a person may see it: without its secrets."""
    hidden = {key: _MASK for key in url.query if _is_secret(key)}
    return url.update_query_dict(hidden).render_as_string()


def has_secret(url: URL) -> bool:
    """Whether there is something in it that nobody may see."""
    return url.password is not None or any(map(_is_secret, url.query))


def _is_secret(query_key: str) -> bool:
    return any(word in query_key.lower() for word in _SECRET_WORDS)
