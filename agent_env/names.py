"""Names on the wire: workflow types, activity types, updates, task queues. Permanent. Pure.

Recorded histories carry these names, so code may move and names may not.
"""

EPISODE = "agent_env.Episode"
ROLLOUT_GROUP = "agent_env.RolloutGroup"
RECONCILER = "agent_env.Reconcile"

OPEN = "agent_env.open"
BEGIN = "agent_env.begin"
RUN_STEPS = "agent_env.run_steps"
INTERRUPT = "agent_env.interrupt"
FINISH = "agent_env.finish"
OPEN_GROUP = "agent_env.open_group"
CANCEL_GROUP = "agent_env.cancel_group"
GROUP_MEMBERS = "agent_env.group_members"
LIST_MEMBER = "agent_env.list_member"
GROUP_STATE = "agent_env.group_state"
ASK_GROUP = "agent_env.ask_group"
INTERRUPT_GROUP = "agent_env.interrupt_group"
CANCEL_RUNS = "agent_env.cancel_runs"
AWAIT_MEMBERS = "agent_env.await_members"
RECONCILE = "agent_env.reconcile"
REPAIR = "agent_env.repair"
BEGIN_TURN = "agent_env.begin_turn"
PLAY_TURN = "agent_env.play_turn"

LISTED = "agent_env.listed"
"""Update: answers once the row exists, or fails with what kept it from existing."""
OUTCOME = "agent_env.outcome"
"""Update: answers as soon as the outcome is known, before teardown."""
REPLACE_MEMBER = "agent_env.replace_member"
"""Update: answers with the id of the run that stands for a member from now on."""
GROUP_IS_ENDING = "GroupIsEnding"
"""Type of the failure of a replacement that came too late for this execution of the group."""

NEXT_TURN = "agent_env.next_turn"
"""Update: answers with an open turn that the caller does not hold, or once none will come."""
RECORD_TURN = "agent_env.record_turn"
"""Update: takes up a message of the turn's player, and answers once its tools have run."""
END_TURN = "agent_env.end_turn"
"""Update: hands a turn back."""
ASK_AGAIN = "AskAgain"
"""Type of the failure of an update whose execution goes on in a new one."""
OPEN_TURNS = "agent_env.open_turns"
"""Query: which turns are open."""

TASK_QUEUE = "episodes"
"""Workflows, and ``begin``: any worker with room will do."""

CONTROL_QUEUE = "episodes-control"
"""What any worker can do at any time: the end of an episode without a host, groups' records."""

RECONCILE_QUEUE = "episodes-reconcile"
"""Looks of the reconciler: nothing else may keep them waiting."""
RECONCILER_ID = "episodes-reconcile"
"""Id of the workflow that reconciles a namespace: one however many workers there are."""


def host_queue(host: str) -> str:
    """The queue of everything that must happen where an episode's local sandboxes are."""
    return f"{TASK_QUEUE}@{host}"
