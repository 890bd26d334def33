"""What a task can do: the contract, finding a step by its type, and running a segment."""

from agent_env.steps.base import Params, Scoring, Step, StepContext, StepResult
from agent_env.steps.catalog import Steps

__all__ = ["Params", "Scoring", "Step", "StepContext", "StepResult", "Steps"]
