"""Runs a program that dies when its parent does, however the parent dies. Linux only.

``python -I -S _die_with_parent.py PARENT_PID PROGRAM [ARGUMENT…]`` becomes the program. It is run
as a file and needs the standard library alone: nothing else is loaded on the way.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, argv: list[str]) -> None:
    """Ask the kernel for SIGKILL at the parent's death, then become ``argv``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # A parent that died before the request above would never be noticed.
    if os.getppid() == parent:
        os.execv(argv[0], argv)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
