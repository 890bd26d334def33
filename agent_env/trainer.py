"""What a training loop holds: starts episodes and groups, and finds them again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.client import (
    Client,
)

from agent_env import ids, names
from agent_env._connect import connect, open_index, settled
from agent_env._start import Starter
from agent_env.artifacts import ArtifactStore
from agent_env.config import Settings, load_settings
from agent_env.episode import Episode, EpisodeSpec
from agent_env.errors import (
    InvalidSpecError,
)
from agent_env.group import RolloutGroup
from agent_env.results import EpisodeResult, GroupResult
from agent_env.runs import RunIndex
from agent_env.specs import EpisodeStart, GroupStart, Placement
from agent_env.task import Task

MAX_MEMBERS = 10_000

_current: ContextVar[Trainer] = ContextVar("trainer")


def current_trainer() -> Trainer:
    """The trainer that is entered in this context.

    Raises:
        LookupError: none is; enter one with ``async with Trainer.connect():``.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError(
            "no trainer is entered: start episodes inside `async with Trainer.connect():`"
        ) from None


class Trainer:
    """Starts episodes and groups by name: needs no worker code and no workflow code."""

    def __init__(self, client: Client, index: RunIndex, store: ArtifactStore) -> None:
        self.client = client
        self.index = index
        self._store = store
        self._starter = Starter(client, index)

    @classmethod
    @asynccontextmanager
    async def connect(cls, settings: Settings | None = None) -> AsyncGenerator[Trainer]:
        """Connect to Temporal and to the run index; both must be there.

        Args:
            settings: None means those of this machine and environment.

        Raises:
            UnavailableError: no Temporal server answers; the message says how to start one.
            IndexUnavailableError: the run index's database does not answer.
        """
        settings = settings or load_settings().settings
        client = await connect(settings.state_dir)
        index = await open_index(settings)
        trainer = cls(client, index, ArtifactStore(settings.state_dir / "artifacts"))
        try:
            with trainer.entered():
                yield trainer
        finally:
            index.close()
            await settled()

    @contextmanager
    def entered(self) -> Generator[None]:
        """Make this the trainer that ``EpisodeSpec.start`` uses in this context."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    async def start(
        self,
        spec: EpisodeSpec,
        *,
        run_id: str | None = None,
        run_group_id: str | None = None,
    ) -> Episode:
        """Start one episode. Returns when its row exists.

        Args:
            spec: What to play.
            run_id: Its id; None makes one.
            run_group_id: A group to list it under. It needs not exist.

        Raises:
            ConflictError: a run with this id exists; the message says which. Nothing was started.
            InvalidSpecError: an id can't be used, or an artifact's folder is not there.
            IndexUnavailableError: the row could not be written. No episode was left behind.
            UnavailableError: Temporal does not answer, or somebody terminated the episode there.
        """
        now = datetime.now(UTC)
        run_id = _checked("run_id", run_id or ids.run_id(now, secrets.randbits(30)))
        if run_group_id is not None:
            _checked("run_group_id", run_group_id)
        start = EpisodeStart(
            run_id=run_id,
            task=await asyncio.to_thread(self.published, spec.task),
            seed=spec.seed,
            tags=spec.tags,
            run_group_id=run_group_id,
            deadline=spec.deadline,
        )
        handle = await self._starter.begun(names.EPISODE, run_id, start, EpisodeResult)
        # Reading the row is cheaper than asking the workflow, but can't say why there is none.
        if not await self._starter.has_row(run_id, handle.first_execution_run_id):
            await self._starter.listed(handle, Placement)
        return self.attach(run_id)

    async def start_group(
        self,
        spec: EpisodeSpec,
        *,
        size: int | None = None,
        seeds: Sequence[Mapping[str, str]] | None = None,
        surplus: int = 0,
        min_scored: int | None = None,
        deadline: timedelta | None = None,
        max_parallel: int | None = None,
        run_group_id: str | None = None,
    ) -> RolloutGroup:
        """Start a group of episodes of one spec. Returns when every member's row exists.

        Args:
            spec: What to play.
            size: How many, 1 to 10,000. Each member's seed is the spec's with ``seed`` counted up
                from the spec's own ``seed``, or from 0.
            seeds: In place of ``size``: one seed a member, laid over the spec's.
            surplus: How many more than ``size`` to start: the group is complete when ``size`` have
                a reward.
            min_scored: When so many have a reward, the others are canceled with the reason "group
                complete". None means all are played; with a surplus, ``size``.
            deadline: Longest time until the last member has its outcome; who has none then is
                canceled. ``spec.deadline`` is each member's own.
            max_parallel: Most members that run at once; None means as many as the hosts take.
            run_group_id: Its id; None makes one.

        Raises:
            InvalidSpecError: the size or the seeds can't be used.
            ConflictError: a group with this id exists.
            IndexUnavailableError: the rows could not be written. Nothing was left behind.
            UnavailableError: Temporal does not answer.
        """
        now = datetime.now(UTC)
        run_group_id = _checked(
            "run_group_id", run_group_id or ids.group_id(now, secrets.randbits(30))
        )
        if len(run_group_id) > ids.MAX_GROUP_ID_CHARS:
            raise InvalidSpecError.of(
                "run_group_id",
                f"has at most {ids.MAX_GROUP_ID_CHARS} characters, not {len(run_group_id)}",
            )
        if max_parallel is not None and max_parallel < 1:
            raise InvalidSpecError.of("max_parallel", f"is at least 1, not {max_parallel}")
        if deadline is not None and deadline <= timedelta(0):
            raise InvalidSpecError.of("deadline", f"is longer than nothing, not {deadline}")
        member_seeds = _member_seeds(spec.seed, size, seeds, surplus)
        if surplus and min_scored is None:
            min_scored = size
        if min_scored is not None and not 1 <= min_scored <= len(member_seeds):
            raise InvalidSpecError.of(
                "min_scored", f"is 1 to {len(member_seeds)} here, not {min_scored}"
            )
        start = GroupStart(
            run_group_id=run_group_id,
            task=await asyncio.to_thread(self.published, spec.task),
            seeds=member_seeds,
            group_deadline=deadline,
            min_scored=min_scored,
            tags=spec.tags,
            max_parallel=max_parallel,
            deadline=spec.deadline,
        )
        handle = await self._starter.begun(names.ROLLOUT_GROUP, run_group_id, start, GroupResult)
        await self._starter.listed(handle, int)
        return self.attach_group(run_group_id)

    def attach(self, run_id: str) -> Episode:
        """An episode by its id, from any process. Nothing is asked until it is used."""
        handle = self.client.get_workflow_handle(run_id, result_type=EpisodeResult)
        return Episode(run_id, handle, self.index, self.client)

    def attach_group(self, run_group_id: str) -> RolloutGroup:
        """A group by its id, from any process; also one that only single episodes name."""
        handle = self.client.get_workflow_handle(run_group_id, result_type=GroupResult)
        return RolloutGroup(run_group_id, handle, self.index, self.client, self.attach)

    def published(self, task: Task) -> Task:
        """The task with each artifact's folder in the store."""
        stored: dict[str, str] = {}
        for name, where in task.artifacts.items():
            if where.startswith("sha256:"):
                stored[name] = where
                continue
            try:
                stored[name] = self._store.put(Path(where))
            except FileNotFoundError:
                raise InvalidSpecError.of(
                    f"task {task.id!r}: artifacts.{name}", f"there is no folder {where!r}"
                ) from None
        return task.model_copy(update={"artifacts": stored})


def _checked(field: str, value: str) -> str:
    if problem := ids.id_problem(value):
        raise InvalidSpecError.of(field, problem)
    return value


def _member_seeds(
    base: Mapping[str, str],
    size: int | None,
    seeds: Sequence[Mapping[str, str]] | None,
    surplus: int,
) -> tuple[Mapping[str, str], ...]:
    if (size is None) == (seeds is None):
        raise InvalidSpecError.of("size", "give either a size or one seed a member, not both")
    if surplus < 0 or (surplus and size is None):
        raise InvalidSpecError.of(
            "surplus", f"is 0 or more and goes with a size, not {surplus}; count it into `seeds`"
        )
    if size is not None and size < 1:
        surplus = 0  # no surplus makes up for it
    count = len(seeds) if seeds is not None else (size or 0) + surplus
    if not 1 <= count <= MAX_MEMBERS:
        raise InvalidSpecError.of("size", f"a group has 1 to {MAX_MEMBERS:,} members, not {count}")
    if seeds is not None:
        return tuple({**base, **seed} for seed in seeds)
    try:
        first = int(base.get("seed", "0"))
    except ValueError:
        raise InvalidSpecError.of(
            "seed", f"can't be counted up from {base['seed']!r}; give a whole number, or `seeds`"
        ) from None
    return tuple({**base, "seed": str(first + index)} for index in range(count))
