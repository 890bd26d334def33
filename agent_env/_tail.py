"""Keeps the end of an endless output, and cuts output into lines. Pure."""

from collections.abc import Callable

MAX_LINE_BYTES = 8 * 1024 * 1024
"""Longest line that is handed on, in bytes; of a longer one the rest is dropped."""


class Tail:
    """The last bytes of a stream, in memory of at most twice the limit.

    Args:
        limit: Bytes to keep.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._seen = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._seen += len(data)
        self._kept += data
        if len(self._kept) > 2 * self._limit:
            del self._kept[: len(self._kept) - self._limit]

    def text(self) -> tuple[str, int]:
        """What was kept, and how many bytes were cut from its front.

        A cut text starts with a mark that says so. Invalid UTF-8 shows as replacement characters;
        the cut itself never makes any.
        """
        start = max(0, len(self._kept) - self._limit)
        if self._seen <= self._limit:
            return self._kept.decode("utf-8", "replace"), 0
        # A character has up to three continuation bytes; more in a row is not UTF-8 anyway.
        for _ in range(3):
            if start < len(self._kept) and self._kept[start] & 0xC0 == 0x80:
                start += 1
        cut = self._seen - (len(self._kept) - start)
        kept = self._kept[start:].decode("utf-8", "replace")
        return f"[… {cut:,} bytes cut …]\n{kept}", cut


class Lines:
    """Cuts a stream at its newlines and hands each line on, without the newline."""

    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self._on_line = on_line
        self._open = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes; every line that they complete is handed on."""
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._extend(part)
            self._flush()
        self._extend(rest)

    def end(self) -> None:
        """Hand on a last line that has no newline."""
        if self._open:
            self._flush()

    def _extend(self, part: bytes) -> None:
        self._open += part[: MAX_LINE_BYTES - len(self._open)]

    def _flush(self) -> None:
        line = bytes(self._open)
        self._open.clear()
        self._on_line(line)
