"""``python -m agent_env.cli`` is ``episodes``."""

from agent_env.cli import run_and_exit

if __name__ == "__main__":
    run_and_exit()
