"""Guess the encoding of texts that are not UTF-8."""

from __future__ import annotations

import re

_WIDE_PAGES = ("CP932", "EUC-JP", "GB18030", "EUC-KR", "BIG5")
"""Encodings of East Asian texts, with two bytes for most letters."""

_MOSTLY = 0.95
_WIDE_LETTERS = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef\u3000-\u303f]")


def page_of(raw: bytes, start: int) -> tuple[str, str]:
    """Guess the encoding of bytes; also return the first letter that is not ASCII.

    An East Asian encoding is chosen if it decodes all bytes and nearly all letters beyond ASCII are East Asian; else CP1252.

    >>> page_of("回答,正解".encode("cp932"), 0), page_of("Café".encode("cp1252"), 3)
    (('CP932', '回'), ('CP1252', 'é'))
    """
    for page in _WIDE_PAGES:
        try:
            letters = [letter for letter in raw.decode(page.lower()) if not letter.isascii()]
        except UnicodeDecodeError:
            continue
        if len(letters) > 1 and len(_WIDE_LETTERS.findall("".join(letters))) >= _MOSTLY * len(letters):
            return page, letters[0]
    return "CP1252", raw[start : start + 1].decode("cp1252", "ignore")
