"""How long each activity may take, how often it is retried, and what a cancel does to it."""

import hashlib
from datetime import timedelta

from temporalio.common import Priority, RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig, LocalActivityConfig

from agent_env import names

_PATIENT = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=15)
)
"""Tries for as long as the episode lives: the index must learn how it ended."""

HEARTBEAT_TIMEOUT = timedelta(seconds=20)
"""How long a worker may say nothing of a segment before it counts as dead."""

LISTED_WITHIN = timedelta(seconds=60)
"""How long the start of an episode or a group waits for the run index."""

OPEN: LocalActivityConfig = {
    # Bounded, because start() waits for it and a local activity hears of a cancel late.
    "schedule_to_close_timeout": LISTED_WITHIN,
    "start_to_close_timeout": timedelta(seconds=40),
    "retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=3),
    "local_retry_threshold": timedelta(seconds=30),
}

BEGIN: ActivityConfig = {
    "start_to_close_timeout": timedelta(seconds=40),
    # A host that was full a moment ago may have room: never wait long for that.
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=1)
    ),
}

RUN_STEPS: ActivityConfig = {
    # The steps have their own limits; this one only satisfies the engine.
    "start_to_close_timeout": timedelta(days=3650),
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=10)
    ),
    # A step is over when its processes are gone, not when the request was sent.
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}

BEGIN_TURN: ActivityConfig = {
    "start_to_close_timeout": timedelta(minutes=5),
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=10)
    ),
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}

PLAY_TURN: ActivityConfig = RUN_STEPS
"""The tools have their own limits, as steps have."""

INTERRUPT: ActivityConfig = {
    "schedule_to_start_timeout": timedelta(seconds=10),
    "start_to_close_timeout": timedelta(seconds=10),
    "retry_policy": RetryPolicy(maximum_attempts=1),
}

ASK_GROUP: ActivityConfig = {
    # Only speeds a cancel up: where it can't be had soon, the cancel goes on without.
    "schedule_to_close_timeout": timedelta(seconds=10),
    "start_to_close_timeout": timedelta(seconds=10),
    "retry_policy": RetryPolicy(maximum_attempts=2),
}

CANCEL_RUNS: ActivityConfig = {
    "start_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "retry_policy": _PATIENT,
}

AWAIT_MEMBERS: ActivityConfig = {
    # Waits for as long as episodes take.
    "start_to_close_timeout": timedelta(days=3650),
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "retry_policy": _PATIENT,
}

GROUP_STATE: LocalActivityConfig = {
    # A look now and then: one that fails is made again at the next.
    "schedule_to_close_timeout": timedelta(seconds=5),
    "retry_policy": RetryPolicy(maximum_attempts=1),
}

FINISH: ActivityConfig = {
    "start_to_close_timeout": timedelta(minutes=5),
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "retry_policy": _PATIENT,
}

RECORD: ActivityConfig = {
    "start_to_close_timeout": timedelta(seconds=60),
    "retry_policy": _PATIENT,
}

RECONCILE: ActivityConfig = {
    # One activity looks for ever, and heartbeats: a look costs no history.
    "start_to_close_timeout": timedelta(days=3650),
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "retry_policy": _PATIENT,
}

REPAIR: ActivityConfig = {
    **FINISH,
    # What takes longer is given up; the next look finds it again.
    "schedule_to_close_timeout": timedelta(minutes=15),
}

REPAIR_GROUP: ActivityConfig = {**RECORD, "schedule_to_close_timeout": timedelta(minutes=15)}


def on(
    task_queue: str,
    call: ActivityConfig,
    *,
    host_lost_after: timedelta | None = None,
    fair_to: str | None = None,
) -> ActivityConfig:
    """The options of a call on a queue.

    Args:
        task_queue: The queue.
        call: The rest of its options.
        host_lost_after: How long nobody may poll the queue.
        fair_to: Whose share of the queue it takes: a group, or a run by itself.
    """
    options: ActivityConfig = {**call, "task_queue": task_queue}
    if fair_to is not None:
        # The engine takes keys of at most 64 bytes.
        key = (
            fair_to if len(fair_to.encode()) <= 64 else hashlib.sha256(fair_to.encode()).hexdigest()
        )
        options["priority"] = Priority(fairness_key=key)
    if host_lost_after is not None:
        options["schedule_to_start_timeout"] = host_lost_after
    return options


def eager(call: ActivityConfig) -> ActivityConfig:
    """The options of a call that this worker is to be handed with the answer to its workflow task.

    One try: the next goes over the host's own queue. An engine that does not hand it over leaves it
    on the shared queue, which nobody serves such work from.
    """
    return {
        **call,
        "task_queue": names.TASK_QUEUE,
        "schedule_to_start_timeout": timedelta(seconds=2),
        "retry_policy": RetryPolicy(maximum_attempts=1),
    }
