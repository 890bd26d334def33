"""The workflow classes that a worker registers."""

from workflows.episode import EpisodeWorkflow
from workflows.group import RolloutGroupWorkflow

WORKFLOWS: list[type] = [EpisodeWorkflow, RolloutGroupWorkflow]
