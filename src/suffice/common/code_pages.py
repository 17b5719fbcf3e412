"""The encodings in which texts that are not UTF-8 may be written."""

from __future__ import annotations

import re

_WIDE_PAGES = ("CP932", "EUC-JP", "GB18030", "EUC-KR", "BIG5")
"""Encodings of East Asian texts, with two bytes for most letters."""

_MOSTLY = 0.95
_WIDE_LETTERS = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef\u3000-\u303f]")


def page_of(raw: bytes, start: int) -> tuple[str, str]:
    """Return an encoding in which bytes are text, and the first letter that is not ASCII; CP1252 if no other one is likelier.

    One of East Asia is likelier if it reads everything, and nearly all letters beyond ASCII are of its scripts.

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
