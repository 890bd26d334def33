"""Makes one score of the rows of several verifiers."""

from pydantic import JsonValue
from typing_extensions import override

from agent_env.results import verdicts_of
from agent_env.scores import Aggregator, aggregate
from agent_env.steps.base import Params, Scoring, Step, StepContext, StepResult


class AggregateVerifiersParams(Params):
    """Which verifiers, and how."""

    verifier_ids: tuple[str, ...] = ()
    """The verifiers, by their ``verifier_id`` or step id. None at all is unscored."""
    score_aggregator: Aggregator = Aggregator.WEIGHTED_AVERAGE
    """``all_pass``, ``any_pass`` or ``weighted_average``."""
    verifier_id: str | None = None
    """What other steps call the score; None means the step's id."""


class AggregateVerifiers(Step[AggregateVerifiersParams]):
    """Scores 0 to 1 over all rows at once. A verifier without rows is one row of its score.

    What is unscored counts for nothing; if nothing counts, this is unscored too.
    """

    type = "aggregate_verifiers"

    @override
    async def run(self, params: AggregateVerifiersParams, ctx: StepContext) -> StepResult:
        ids = list(dict.fromkeys(params.verifier_ids))
        rows = [row for one in ids for row in verdicts_of(one, ctx.reports)]
        score = aggregate(rows, params.score_aggregator)
        output: dict[str, JsonValue] = {
            "verifier_id": params.verifier_id or ctx.step_id,
            "source_verifier_ids": [*ids],
            "rows": len(rows),
            "score": score,
        }
        return StepResult(output, score)

    @override
    def scoring(self, params: AggregateVerifiersParams) -> Scoring:
        return Scoring(
            records=True, verifier_id=params.verifier_id, consumes=tuple(params.verifier_ids)
        )


STEP = AggregateVerifiers
