"""The workflow classes that a worker registers."""

from workflows.episode import EpisodeWorkflow
from workflows.group import RolloutGroupWorkflow
from workflows.reconcile import ReconcileWorkflow

WORKFLOWS: list[type] = [EpisodeWorkflow, RolloutGroupWorkflow, ReconcileWorkflow]
