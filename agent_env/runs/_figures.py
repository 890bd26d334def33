"""The figures of groups, computed by the database."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    Subquery,
    bindparam,
    case,
    func,
    or_,
    select,
    tuple_,
)

from agent_env.runs import _dialect
from agent_env.runs._literals import at_most
from agent_env.runs.tables import runs
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus


def figures_of(connection: Connection, group_ids: Sequence[str]) -> Mapping[str, GroupFigures]:
    """The figures of these groups, by id; none of one without runs."""
    statement = _figures_statement(connection.dialect.name)
    rows = connection.execute(statement, {"group_ids": group_ids}).mappings()
    return {row["run_group_id"]: GroupFigures(**row) for row in rows}


@functools.cache
def _figures_statement(dialect: str) -> Select[Any]:
    members = _members_of(bindparam("group_ids", expanding=True))
    reward = members.c.reward
    counts = [
        func.count(case((members.c.status == status, 1))).label(status.value.lower())
        for status in RunStatus
    ]
    return (
        select(
            members.c.run_group_id,
            func.count().label("n"),
            *counts,
            func.count(reward).label("n_scored"),
            _dialect.mean_of(dialect, reward).label("mean"),
            _dialect.std_of(dialect, reward).label("std"),
            func.min(reward).label("min"),
            func.max(reward).label("max"),
            func.count(case((reward >= 1.0, 1))).label("n_passed"),
        )
        # As ``is_latest`` says it of a row of ``runs``.
        .where(or_(members.c.replaced_by.is_(None), members.c.member_index.is_(None)))
        .group_by(members.c.run_group_id)
    )


def _members_of(group_ids: BindParameter[Any]) -> Subquery:
    """All members, each with its next re-run: in one walk along the index of groups.

    ``is_latest`` would look for each member's re-run on its own: in a group of 1,000 that takes
    twice as long on PostgreSQL.
    """
    next_run = func.lead(runs.c.run_id).over(
        partition_by=(runs.c.run_group_id, runs.c.member_index),
        order_by=(runs.c.created_at, runs.c.run_id),
    )
    members = select(
        runs.c.run_group_id,
        runs.c.member_index,
        runs.c.status,
        runs.c.reward,
        next_run.label("replaced_by"),
    ).where(runs.c.run_group_id.in_(group_ids))
    return members.subquery()


def is_latest() -> ColumnElement[bool]:
    """Whether no re-run has replaced this member. A run without an index replaces none."""
    newer = runs.alias("newer")
    # Not as NOT EXISTS: PostgreSQL makes a join of that, and may read all runs for it.
    newer_run = (
        select(newer.c.run_id)
        .where(
            newer.c.run_group_id == runs.c.run_group_id,
            newer.c.member_index == runs.c.member_index,
            tuple_(newer.c.created_at, newer.c.run_id) > tuple_(runs.c.created_at, runs.c.run_id),
        )
        .limit(at_most(1))
    )
    return newer_run.scalar_subquery().is_(None)
