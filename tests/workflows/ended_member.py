"""A member of a group whose row has ended before its workflow began."""

from datetime import UTC, datetime

from agent_env.runs import GroupRecord, new_run
from agent_env.scores import GroupFigures
from agent_env.specs import EpisodeStart
from tests.workflows.conftest import EpisodeHarness


def ended_member(h: EpisodeHarness) -> EpisodeStart:
    """List a group of one and end its member; what the member is to be started with."""
    task = h.spec({"id": "a"}).task
    start = EpisodeStart(run_id="grp-0000", task=task, run_group_id="grp", member_index=0)
    listed = datetime(2026, 1, 31, tzinfo=UTC)
    member = new_run(start, workflow_run_id=None, namespace="default", created_at=listed)
    group = GroupRecord(
        run_group_id="grp",
        task_id=task.id,
        created_at=listed,
        size=1,
        figures=GroupFigures(n=1, queued=1),
    )
    h.index.open_group(group, [member])
    h.index.cancel_group("grp", by="ana", reason="no more", at=listed)
    return start
