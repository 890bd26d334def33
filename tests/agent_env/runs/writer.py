"""A process that writes to a run index: ``writer.py URL NAME SECONDS ROOM``.

Opens runs for that many seconds, ends every second one, and prints as JSON how many of each.
"""

import json
import sys
import time

from agent_env.runs import RunIndex
from agent_env.status import RunStatus
from tests.agent_env.runs.conftest import T0, finished, new_run, report


def main(url: str, name: str, duration_s: float, room: int) -> None:
    index = RunIndex.open(url)
    opened = ended = most = 0
    deadline = time.monotonic() + duration_s
    while time.monotonic() < deadline:
        run = new_run(f"{name}-{opened}", run_group_id=name)
        index.open_run(run, host="here", room=room, at=T0)
        most = max(most, index.count_running("here"))
        opened += 1
        if opened % 2 == 0:
            end = finished(run, RunStatus.COMPLETED, reward=1.0, reports=(report(),))
            _, moved = index.finish_run(end, at=T0)
            assert moved
            ended += 1
    index.close()
    sys.stdout.write(json.dumps({"opened": opened, "ended": ended, "most_running": most}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
