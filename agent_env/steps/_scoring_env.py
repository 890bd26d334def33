"""What the environment of a command that scores has more than the sandbox's own."""

from collections.abc import Mapping

SCORING_ENV: Mapping[str, str] = {
    # Python runs what is in its user's own folder before any script: perhaps the agent's.
    "PYTHONNOUSERSITE": "1",
}
