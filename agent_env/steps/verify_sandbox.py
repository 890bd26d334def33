"""Scores what is in a sandbox by criteria: files that exist, what they hold, commands that succeed.

The criteria are looked at in the sandbox that the agent worked in, one after another. Their texts
are the task's, and the agent never sees them; a script that they run must be out of its reach, too:
load it with ``load_artifact`` after the agent has ended, into a folder that did not exist before.
"""

from collections.abc import Sequence
from datetime import timedelta

from pydantic import Field, JsonValue, model_validator
from typing_extensions import override

from agent_env.scores import Aggregator, Verdict, aggregate
from agent_env.steps._criteria import HANDLED, Criterion, Examiner, Finding
from agent_env.steps._foreign_keys import without
from agent_env.steps._texts import head
from agent_env.steps.base import DEFAULT_TIMEOUT, Params, Scoring, Step, StepContext, StepResult

_FOREIGN = {"agent_name": "name the sandbox with sandbox_name"}
_MAX_CRITERIA = 200
_TEXT_BUDGET = 40 * 1024
"""What the texts of all rows may take in the output, in bytes as JSON."""
_MAX_TEXT = 1000
_SLACK = timedelta(minutes=1)


class VerifySandboxParams(Params):
    """What must hold, and how that becomes a score."""

    criteria: tuple[Criterion, ...] = Field(default=(), max_length=_MAX_CRITERIA)
    """All are looked at, whatever the others give. None at all is unscored."""
    sandbox_name: str | None = None
    """Where to look; may be left out when there is one sandbox."""
    base_dir: str = Field(default="/app", min_length=1)
    """Where relative paths start, and where commands run."""
    score_aggregator: Aggregator = Aggregator.ALL_PASS
    """``all_pass``, ``any_pass`` or ``weighted_average``."""
    shell_timeout_seconds: float = Field(default=120, gt=0, le=24 * 3600)
    """Longest that one command or one search may take, in seconds; then its criterion fails."""
    verifier_id: str | None = None
    """What other steps call the score; None means the step's id."""

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, data: object) -> object:
        return without(data, _FOREIGN)


class VerifySandbox(Step[VerifySandboxParams]):
    """Scores 0 to 1. Skipped criteria count for nothing; if all are skipped it is unscored."""

    type = "verify_sandbox"

    @override
    async def run(self, params: VerifySandboxParams, ctx: StepContext) -> StepResult:
        sandbox = await ctx.sandbox(params.sandbox_name)
        timeout = timedelta(seconds=params.shell_timeout_seconds)
        examiner = Examiner(sandbox, params.base_dir, timeout)
        max_text = min(_MAX_TEXT, _TEXT_BUDGET // (2 * max(1, len(params.criteria))))
        rows: list[JsonValue] = []
        verdicts: list[Verdict] = []
        for number, criterion in enumerate(params.criteria, 1):
            finding = None
            if criterion.type in HANDLED:
                finding = await examiner.examine(criterion)
                score = float(finding.passed)
                verdicts.append(
                    Verdict(criterion=criterion.criterion, score=score, weight=criterion.weight)
                )
            rows.append(_row(criterion, finding, max_text))
            ctx.progress({"criteria": number, "of": len(params.criteria)})
        score = aggregate(verdicts, params.score_aggregator)
        verifier_id = params.verifier_id or ctx.step_id
        return StepResult({"verifier_id": verifier_id, "results": rows, "score": score}, score)

    @override
    def timeout(self, params: VerifySandboxParams) -> timedelta:
        """Leaves every criterion its own timeout."""
        most = len(params.criteria) * timedelta(seconds=params.shell_timeout_seconds)
        return max(DEFAULT_TIMEOUT, most + _SLACK)

    @override
    def scoring(self, params: VerifySandboxParams) -> Scoring:
        return Scoring(records=True, verifier_id=params.verifier_id)

    @override
    def sandboxes(self, params: VerifySandboxParams) -> Sequence[str | None]:
        return (params.sandbox_name,)


def _row(criterion: Criterion, finding: Finding | None, max_text: int) -> JsonValue:
    why = (
        f"skipped: verify_sandbox has no criteria of type {criterion.type!r}, only "
        f"{', '.join(HANDLED)}"
        if finding is None
        else finding.justification
    )
    return {
        "criterion": head(criterion.criterion, max_text),
        "type": head(criterion.type, max_text),
        "score": None if finding is None else float(finding.passed),
        "weight": criterion.weight,
        "passed": None if finding is None else finding.passed,
        "justification": head(why, max_text),
        "skipped": finding is None,
    }


STEP = VerifySandbox
