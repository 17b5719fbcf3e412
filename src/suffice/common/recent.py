"""Remember a limited number of recent texts, to detect repeated texts."""

from __future__ import annotations

from contextlib import suppress

_REMEMBERED = 1 << 16


class RecentTexts:
    """The most recently added texts, about 65,536 of them.

    Several threads may add texts at once, because single operations of a dictionary are thread-safe.  A lock is not used,
    since a forked process could inherit it while it is held.

    >>> recent = RecentTexts()
    >>> recent.add("chatcmpl-1"), recent.add("chatcmpl-2"), recent.add("chatcmpl-1")
    (False, False, True)
    """

    def __init__(self) -> None:
        self._texts: dict[str, object] = {}

    def add(self, text: str) -> bool:
        """Remember a text; return True if it was already remembered before this call."""
        mine = object()
        is_repeated = self._texts.setdefault(text, mine) is not mine
        if len(self._texts) > _REMEMBERED:
            with suppress(KeyError, RuntimeError):  # another thread has removed the oldest one meanwhile
                del self._texts[next(iter(self._texts))]
        return is_repeated
