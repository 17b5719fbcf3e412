"""What comes twice is noticed, within a bounded memory and in any number of threads."""

from concurrent.futures import ThreadPoolExecutor

from suffice.common import recent
from suffice.common.recent import RecentTexts


def test_the_oldest_texts_are_forgotten(monkeypatch):
    monkeypatch.setattr(recent, "_REMEMBERED", 3)
    texts = RecentTexts()
    assert [texts.add(text) for text in "abcd"] == [False] * 4
    assert texts.add("b")
    assert not texts.add("a")


def test_of_threads_that_add_one_text_one_is_first():
    texts = RecentTexts()
    with ThreadPoolExecutor(8) as pool:
        known = [*pool.map(lambda number: texts.add(f"id{number % 500}"), range(4000))]
    assert known.count(False) == 500
