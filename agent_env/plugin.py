"""What client and worker must agree on: payloads, errors, what passes the workflow sandbox."""

import dataclasses

from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from agent_env.errors import bounded


class EpisodePlugin(SimplePlugin):
    """Given to every client and, through it, to every worker and replayer.

    Args:
        sandboxed: Whether workflow code runs in the SDK's sandbox, which finds what is not
            deterministic and costs 16 ms of CPU a workflow. The tests run so; a worker does not,
            since it runs no workflow code but ours.
    """

    def __init__(self, *, sandboxed: bool = False) -> None:
        super().__init__(
            "durable_episodes.EpisodePlugin",
            data_converter=data_converter(),
            workflow_runner=SandboxedWorkflowRunner() if sandboxed else UnsandboxedWorkflowRunner(),
        )


class BoundedFailureConverter(DefaultFailureConverter):
    """Cuts error texts and stacks: the engine loses an error of several megabytes."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        """Convert, then bound every text on the way to the root cause."""
        super().to_failure(exception, payload_converter, failure)
        part = failure
        while True:
            part.message = bounded(part.message)
            part.stack_trace = bounded(part.stack_trace)
            if not part.HasField("cause"):
                return
            part = part.cause


def data_converter() -> DataConverter:
    """Pydantic models as JSON, errors bounded."""
    return dataclasses.replace(
        pydantic_data_converter, failure_converter_class=BoundedFailureConverter
    )
