"""Logs whose rounds are files of any name, or what one of several speakers says: each needs several answers of its owner."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, Loop, shape

LANGUAGES = ("en", "es")


@shape("poems")
def a_file_for_each_pass(draw: Draw) -> Log:
    """Each file is a pass over the same poems, with a row for each language; nothing in a row counts the passes."""
    texts = {(p, lang): tuple(draw.prose(6) for _ in range(3)) for p in range(30) for lang in LANGUAGES}
    files = {
        f"pass_{n}.tsv": [
            {"poem_id": f"p{p:02}", "target_lang": lang, "translation": own[n - 1]} for (p, lang), own in texts.items()
        ]
        for n in (1, 2, 3)
    }
    return Log(files, [Loop(asked, own) for asked, own in texts.items()])
