"""How many members of a group may be open at once, where only the hosts' room bounds them. Pure.

A member that finds no room waits in a queue: a longer way to its host than to be started when there
is room. So a group starts what the hosts seem to have room for, and one or two more to see whether
there is more.
"""

from datetime import timedelta

_FIRST_PAUSE = timedelta(seconds=1)
_LAST_PAUSE = timedelta(seconds=16)


class Window:
    """Grows while everything that was started has begun, and shrinks to what has.

    Args:
        most: It never grows over this.
        room: How large it is at first; None means ``most``.

    Attributes:
        size: Most members open at once.
        pause: How long until the next look.
    """

    def __init__(self, most: int, room: int | None) -> None:
        self.most = most
        self.size = max(1, min(most, room or most))
        self.pause = _FIRST_PAUSE

    @property
    def is_open(self) -> bool:
        """Whether it is as large as it gets: there is nothing to look for."""
        return self.size >= self.most

    def looked(self, *, opened: int, waiting: int, has_ended: bool) -> None:
        """Take the result of a look.

        Args:
            opened: Members that are open.
            waiting: How many of them no host has begun.
            has_ended: Whether a member has ended since the last look.
        """
        if waiting == 0 and opened >= self.size:
            self._resize(self.size + max(1, self.size // 4))
            self.pause = _FIRST_PAUSE
        elif has_ended:
            if waiting > 0:
                self._resize(opened - waiting + 1 + opened // 16)
            self.pause = _FIRST_PAUSE
        elif self.pause >= _LAST_PAUSE:
            # Episodes are long: what the queue costs is nothing to them, and a host that joins
            # finds them there.
            self.size = self.most
        else:
            self.pause *= 2

    def _resize(self, size: int) -> None:
        self.size = max(1, min(self.most, size))
