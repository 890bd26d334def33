"""The command ``episodes``."""

from agent_env.cli._root import main, run_and_exit

__all__ = ["main", "run_and_exit"]
