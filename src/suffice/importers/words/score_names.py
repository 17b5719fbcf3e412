"""Names of scores, and names with a word for a score that mean another number: a confidence, a time or a cost."""

from __future__ import annotations

import re

from suffice.importers.words.names import is_error_count, last_name, plain_name, words, words_in
from suffice.recordings.schema import is_confidence_name, is_measure_name

_RIGHT = frozenset(words("acc accuracy correct correctness right em match matches pass passed solved resolved"))

_OF_OTHERS = frozenset(
    words(
        "self judge critic predicted pred estimated expected prob p retrieval retriever tool format syntax "
        "parse cache not first final best"
    )
)
"""Words of names of numbers that say something else than whether the answer of the round is right."""

_MEASURES = frozenset(
    words(
        "ms s sec secs seconds minutes latency duration elapsed timestamp ts usd eur gbp dollars cents cost costs price spend money "
        "tokens toks bytes chars gpus temperature threshold thresh cutoff likelihood estimate estimates odds stderr std variance"
    )
)
"""Words of names of measures and settings, wherever they stand."""

_PASSES = frozenset({"pass", "passes"})
"""A pass may be a round, so that what a name says besides is what the column has."""

_OF_PASSES = frozenset(
    words(
        "rate rates ratio share fraction percent pct score value mean avg at k all any test tests case cases unit exec execution code "
        "public private hidden full strict plus base is ok eval"
    )
)
"""Words with which a share of tests that pass is called."""

_PLACES = frozenset(
    words(
        "id ids idx index key time times date calls n num no nr number count counts length len size words year batch port seed epoch "
        "rank similarity prev previous delta gain change"
    )
)
"""Words of other numbers if they end a name: `match_id` is an id, and `id_match` a score."""

_SIGNALS = frozenset(words("entropy perplexity agreement novelty progress coverage overlap weight top margin ratio"))
"""Words of numbers that a loop may have known."""

APPROVING = frozenset({"approved", "accepted", "acceptable"})
"""Further words by which a critic says how good an answer is."""

_OK = APPROVING | {"ok", "okay", "good", "valid", "right"}


_CRITIC = re.compile(
    r"(?:\w+[ _-])?(?:critic|reviewer|evaluator|verifier|judge|grader|rater|scorer)(?:[ _-]?(?:agent|model|llm|bot|\d+))?"
)
"""Those who speak about answers, but never answer."""


def is_critic(value: str) -> bool:
    """Return whether a speaker criticises answers and never answers.

    >>> is_critic("Judge"), is_critic("summary_reviewer_2"), is_critic("writer"), is_critic("assistant")
    (True, True, False, False)
    """
    return _CRITIC.fullmatch(value.lower()) is not None


OVERLAPS = words("rouge bleu sacrebleu meteor bertscore chrf bleurt comet xcomet cometkiwi moverscore mover")
"""First words, without numbers, of the names of scores that compare a text with a reference."""


def is_overlap(name: str) -> bool:
    """Return whether a column's name is that of a score that compares texts with a reference.

    >>> is_overlap("rouge1"), is_overlap("rougeL_f"), is_overlap("bert_score_f1"), is_overlap("rough")
    (True, True, True, False)
    """
    first, _, rest = last_name(name).partition("_")
    return first.rstrip("0123456789") in OVERLAPS or first + rest.partition("_")[0] in OVERLAPS


def is_measure_of(name: str) -> bool:
    """Return whether a column's name means a confidence, time, cost or setting, whatever other words it has.

    >>> [is_measure_of(name) for name in ("pass_conf", "judge_latency_s", "confidence.score", "pass_rate")]
    [True, True, True, False]
    """
    return not _MEASURES.isdisjoint(words_in(name)) or is_confidence_name("_".join(words_in(name)))


def says_other(name: str, *, but_for_signals: bool = False) -> bool:
    """Return whether a word in a column's name implies that its numbers do not measure how good an answer is.

    >>> says_other("n_docs"), says_other("retrieval_similarity"), says_other("verbal_conf"), says_other("x_da")
    (True, True, True, False)
    >>> says_other("coverage"), says_other("coverage", but_for_signals=True)
    (True, False)

    Args:
        name: The column's name.
        but_for_signals: True to allow names of signals, such as `coverage`: a loop may know them, but they may be grades, too.
    """
    others = _OF_OTHERS | _PLACES if but_for_signals else _OF_OTHERS | _PLACES | _SIGNALS
    is_other = not others.isdisjoint(words_in(name))
    return is_other or is_measure_of(name) or is_measure_name(name)


def is_score_name(name: str) -> bool:
    """Return whether a word in a column's name means correctness, and no word means something else.

    >>> is_score_name("exec_acc"), is_score_name("self_correct"), is_score_name("confidence")
    (True, False, False)
    >>> [is_score_name(name) for name in ("pass_conf", "id_match", "match_id", "id_pass")]
    [False, True, False, False]
    """
    own = words_in(plain_name(name).rpartition(".")[2])
    said = [word for word in own if word in _RIGHT]
    if not said or not _OF_OTHERS.isdisjoint(own) or is_measure_of(name):
        return False
    others = own if _PASSES.issuperset(said) else own[own.index(said[0]) :]
    return _PLACES.isdisjoint(others)


def may_be_of_passes(name: str) -> bool:
    """Return whether a score's name has a word for "pass" and an unrelated word, so that it may measure anything.

    >>> [may_be_of_passes(name) for name in ("pass_novelty", "overlap_pass", "tests_pass", "pass_at_1", "correct_novelty")]
    [True, True, False, False, False]
    """
    own = {word.rstrip("0123456789") for word in words_in(plain_name(name).rpartition(".")[2])} - {""}
    return own & _RIGHT <= _PASSES and not own <= _PASSES | _OF_PASSES


def is_judgement(name: str) -> bool:
    """Return whether a column's name means approval of an answer, as given by people.

    >>> is_judgement("reviewer_ok"), is_judgement("pass_ok"), is_judgement("ok_latency")
    (True, True, False)
    """
    return not _OK.isdisjoint(words_in(name)) and not is_measure_of(name)


_OUTCOMES = frozenset(
    {"success", "successful", "succeeded", "solved", "resolved", "passed", "correct", "completed", "accomplished"}
)
_NO_OUTCOMES = frozenset(
    words(
        "exit rc errno code err retry retries retried timeout cancelled aborted penalty exception invalid not "
        "non un n num"
    )
)
"""Words that say the contrary of an outcome, or count it, besides those of what goes wrong."""


def is_task_outcome(name: str) -> bool:
    """Return whether a column's name means that a task succeeded.

    >>> [is_task_outcome(name) for name in ("task_success", "tests.passed", "exit_code", "not_resolved", "success_cost")]
    [True, True, False, False, False]
    """
    words = {*words_in(name)}
    is_other = is_measure_of(name) or any(map(is_error_count, words))
    return not words.isdisjoint(_OUTCOMES) and words.isdisjoint(_NO_OUTCOMES) and not is_other
