"""The contract of steps: what one is given, and what it gives back."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

from pydantic import JsonValue

from agent_env._model import EdgeModel
from agent_env.artifacts import ArtifactStore
from agent_env.errors import StepFailedError
from agent_env.processes import Isolation
from agent_env.results import SandboxRef, StepReport
from agent_env.sandboxes import Providers, Sandbox, SandboxSpec

MAX_OUTPUT_BYTES = 64 * 1024
"""Largest output of one step, as JSON, in bytes."""
MAX_EPISODE_OUTPUT_BYTES = 1024 * 1024
"""Largest sum of the outputs of one episode, as JSON, in bytes: they travel in workflow history."""
DEFAULT_TIMEOUT = timedelta(minutes=10)


class Params(EdgeModel):
    """Base of a step type's parameters. Unknown keys are refused before anything starts."""


P = TypeVar("P", bound=Params)


class StepResult(NamedTuple):
    """What a step that succeeded gives back."""

    output: JsonValue = None
    """At most 64 KiB as JSON; put larger things into the artifact store."""
    score: object = None
    """A finite number or a bool, from a step that scores; None is unscored."""


class Scoring(NamedTuple):
    """What a step has to do with scores: known from its parameters, before anything runs."""

    records: bool = False
    """Whether it may record a score."""
    verifier_id: str | None = None
    """What other steps call that score; None means the step's id."""
    consumes: tuple[str, ...] = ()
    """Verifier ids that it combines: those are then no candidates for the reward."""


@dataclass
class StepContext:
    """One attempt of one step, and its way to everything around it."""

    run_id: str
    step_id: str
    epoch: int
    seed: Mapping[str, str]
    artifacts: Mapping[str, str]
    """The task's artifacts by name, as ``sha256:…``."""
    reports: Sequence[StepReport]
    """Of the steps that ended before, in order: the context is their fold."""
    providers: Providers
    store: ArtifactStore
    make_work_dir: Callable[[], Path]
    """Makes ``work_dir``: most steps need none."""
    isolation: Isolation | None = None
    """How processes of a step on the host are kept together; None is the best there is."""
    on_progress: Callable[[JsonValue], None] = field(default=lambda _: None)
    deployed: list[SandboxRef] = field(default_factory=list[SandboxRef])
    """What this attempt deployed so far; recorded however it ends."""

    @functools.cached_property
    def work_dir(self) -> Path:
        """A folder of this attempt on the host, removed when it ends."""
        return self.make_work_dir()

    async def deploy(self, spec: SandboxSpec) -> SandboxRef:
        """Put up a sandbox. Repeating it in a later attempt finds the same one.

        Raises:
            UserError: the type is unknown, or the provider can never do this.
            SandboxUnavailableError: not now.
        """
        key = f"{self.run_id}/{self.step_id}/{self.epoch}/{spec.name}"
        ref = await self.providers.open(spec.type).create(spec, owner=self.run_id, key=key)
        self.deployed.append(ref)
        return ref

    async def sandbox(self, name: str | None) -> Sandbox:
        """The sandbox that an earlier step deployed under this name; None means the only one.

        Raises:
            StepFailedError: none has that name, or there are several and no name.
            SandboxLostError: it is gone.
        """
        refs = {ref.name: ref for report in self.reports for ref in report.sandboxes}
        if name is None and len(refs) == 1:
            (ref,) = refs.values()
        elif name is not None and name in refs:
            ref = refs[name]
        else:
            wanted = "no sandbox_name is given" if name is None else f"there is no sandbox {name!r}"
            raise StepFailedError(f"{wanted}; deployed before this step: {sorted(refs) or 'none'}")
        return await self.providers.open(ref.type).attach(ref)

    def progress(self, detail: JsonValue) -> None:
        """Say how far it is; the latest word travels with the next heartbeat. Cheap, any rate."""
        self.on_progress(detail)


class Step(ABC, Generic[P]):
    """One type of step. Stateless: everything an attempt needs is in its arguments.

    Declare the parameters' model as the type argument: ``class RunCode(Step[RunCodeParams])``.
    """

    type: ClassVar[str]
    params: ClassVar[type[Params]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Params):
                    cls.params = argument

    @abstractmethod
    async def run(self, params: P, ctx: StepContext) -> StepResult:
        """Do the work, once. Must be safe to run again after it was cut off anywhere.

        Canceling this coroutine stops the work; anything it started outside a sandbox must be gone
        when it ends.

        Raises:
            EpisodeError: the step failed, with its type; any other exception is recorded under its
                own name.
        """

    def timeout(self, params: P) -> timedelta | None:
        """Longest an attempt may take when the step says nothing; None means no limit."""
        return DEFAULT_TIMEOUT

    def scoring(self, params: P) -> Scoring:
        """What it has to do with scores."""
        return Scoring()

    def artifacts(self, params: P) -> Sequence[str]:
        """Names of artifacts it needs."""
        return ()

    def deploys(self, params: P) -> Sequence[str]:
        """Names of the sandboxes it deploys: those that the steps after it can work in."""
        return ()

    def sandboxes(self, params: P) -> Sequence[str | None]:
        """Names of the sandboxes it works in; None stands for the only one there is."""
        return ()

    def may_use_sandbox(self, params: P) -> bool:
        """Whether it works in the only sandbox there is, and does without where there is none."""
        return False

    def problems(self, params: P) -> Sequence[str]:
        """What can be known to be wrong before a run and is not in the model: a missing package."""
        return ()
