"""What is said in turns: the conversations, and texts that wait to be taken up by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection, delete, select, update

from agent_env.errors import IndexUnavailableError, RunNotFoundError
from agent_env.runs import _dialect, queries
from agent_env.runs._database import Database
from agent_env.runs.tables import messages, runs, turn_texts
from agent_env.turns import TurnKey, Usage

Message = dict[str, JsonValue]
"""An OpenAI chat message."""


class Said(NamedTuple):
    """One message of a conversation."""

    turn: TurnKey
    seq: int
    """Its place in the turn, from 0."""
    message: Message


class Conversations:
    """The messages of turns, one row each. Thread-safe; every method blocks.

    Errors are those of ``RunIndex``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, run_id: str, text: str) -> str:
        """Keep a text of a run; the digest it is found by. The same text is kept once.

        Raises:
            RunNotFoundError: there is no such run.
        """
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self._database.write(_keep, run_id, digest, text)
        return digest

    def kept(self, run_id: str, digest: str) -> str | None:
        """A text that was kept; None once a conversation has taken it up."""
        return self._database.read(_kept, run_id, digest)

    def write(
        self,
        run_id: str,
        turn: TurnKey,
        said: Mapping[int, Message],
        *,
        taken_up: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Write messages at their places in a turn. Repeating it changes nothing.

        Args:
            run_id: The run; once it has ended, nothing is written.
            turn: The turn.
            said: Messages by their places.
            taken_up: Digest of the kept text that is one of them: it is kept no more.
            usage: What all model calls of the run have used so far.

        Raises:
            IndexUnavailableError: also when the run's row is gone: it comes back.
        """
        self._database.write(_write, run_id, turn, said, taken_up=taken_up, usage=usage)

    def of_turn(self, run_id: str, turn: TurnKey, *, first: int = 0) -> tuple[Message, ...]:
        """The messages of a turn from one place on, in order."""
        return tuple(said.message for said in self._database.read(_said, run_id, turn, first))

    def of_run(self, run_id: str) -> tuple[Said, ...]:
        """All messages of a run, by epoch, step and place."""
        return tuple(self._database.read(_said, run_id, None, 0))


def _keep(connection: Connection, run_id: str, digest: str, text: str) -> None:
    if queries.find(connection, run_id) is None:
        raise RunNotFoundError(queries.no_run(run_id))
    row = {"run_id": run_id, "digest": digest, "text": text}
    connection.execute(_dialect.insert_missing(connection.dialect.name, turn_texts), row)


def _kept(connection: Connection, run_id: str, digest: str) -> str | None:
    return connection.execute(select(turn_texts.c.text).where(*_is(run_id, digest))).scalar()


def _write(
    connection: Connection,
    run_id: str,
    turn: TurnKey,
    said: Mapping[int, Message],
    *,
    taken_up: str | None,
    usage: Usage | None,
) -> None:
    row = queries.find(connection, run_id, lock=True)
    if row is None:
        raise IndexUnavailableError(
            f"the run index has no row of run {run_id!r} at the moment; it is listed again soon"
        )
    if row.status.is_finished:
        return
    rows = [
        {"run_id": run_id, **turn.model_dump(), "seq": seq, "message": message}
        for seq, message in said.items()
    ]
    if rows:
        connection.execute(_dialect.insert_or_replace(connection.dialect.name, messages), rows)
    if taken_up is not None:
        connection.execute(delete(turn_texts).where(*_is(run_id, taken_up)))
    if usage is not None:
        connection.execute(
            update(runs)
            .where(runs.c.run_id == run_id)
            .values(
                model=usage.model,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
            )
        )


def _said(connection: Connection, run_id: str, turn: TurnKey | None, first: int) -> Sequence[Said]:
    of = messages.c
    query = select(of.epoch, of.step_id, of.seq, of.message).where(of.run_id == run_id)
    if turn is not None:
        query = query.where(of.epoch == turn.epoch, of.step_id == turn.step_id, of.seq >= first)
    found = connection.execute(query.order_by(of.epoch, of.step_id, of.seq))
    return [
        Said(TurnKey(step_id=row.step_id, epoch=row.epoch), row.seq, row.message) for row in found
    ]


def _is(run_id: str, digest: str) -> tuple[Any, ...]:
    return turn_texts.c.run_id == run_id, turn_texts.c.digest == digest


def as_text(message: Message) -> str:
    """A message as the text that is kept of it."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))
