"""Decide whether a reply needs evidence, and build the query: DRAGIN's RIND and QFS, as in the authors' program.

Where paper and program differ, this module follows the program, for which the thresholds were chosen.  In the program,
the model reads the reply alone, a token's attention to itself counts, the largest attention is taken in each head and
then averaged over heads, and the values are computed for words within their sentence.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

_NO_CONTENT_WORDS = """
a an the of in on at to for from by with as into onto about after before between during over under through against within without
and or but nor if because although though while since until whether not no is are was were be been being am it its itself this that
these those he she they his her hers their theirs them him himself herself themselves i me mine myself you yours your we us ours my our
who whom whose which what when where why how there here do does did has have had having will would can could may might must shall
should also then than so such very too just only even still already yet ever never both either neither each every any all some
"""
NO_CONTENT_WORDS = frozenset(_NO_CONTENT_WORDS.split())
"""Words without content: like punctuation, they never trigger retrieval and never occur in a query."""


def is_content(word: str) -> bool:
    """Return whether a word carries content; stop words, bare punctuation and endings such as "'s" do not.

    The authors' program uses a part-of-speech tagger to keep nouns, adjectives, verbs, proper nouns and numbers.  The
    list of stop words leaves out about the same words without a model.

    >>> [is_content(word) for word in ("Davis.", "the", "--", "(1988),", "Whose")]
    [True, False, False, True, False]
    """
    text = word.strip().lower()
    if not any(map(str.isalnum, text)) or text.startswith(("'", "\u2019")):
        return False
    return re.sub(r"\A[^\w]+|[^\w]+\Z", "", text) not in NO_CONTENT_WORDS


def rind(
    entropies: npt.NDArray[np.floating],
    attention: npt.NDArray[np.floating],
    words: npt.NDArray[np.integer],
    sentences: npt.NDArray[np.integer],
    content: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float64]:
    """Return the need for retrieval at each word of a reply.

    The need of a word is the mean entropy of its tokens, times the word's share of the attention in its sentence, times
    the number of words in that sentence.  A word of average attention thus gets its mean entropy.  Words without
    content get 0.

    In each head of the last layer, the largest attention that any token of the reply pays to a token is taken. The
    attention of the token is the mean of these values over heads. The attention of a word is the sum over its tokens.

    Source: DRAGIN (Su et al., 2024, section 3.1: RIND), in the form of the authors' program.

    Args:
        entropies: Entropies of the tokens' distributions, nats, shape ``(n_tokens,)``.
        attention: Attention of the last layer when the model reads the reply alone, of token j (row) to token i (column); shape
            ``(n_heads, n_tokens, n_tokens)``.
        words: The word of each token, from 0 to ``n_words - 1``, never decreasing, shape ``(n_tokens,)``.
        sentences: The sentence of each word, shape ``(n_words,)``.
        content: False for words that never trigger retrieval, shape ``(n_words,)``.

    Returns:
        Shape ``(n_words,)``.
    """
    n = len(sentences)
    strongest = np.asarray(attention, dtype=np.float64).max(axis=1, initial=0.0).mean(axis=0)
    of_word = np.bincount(words, strongest, minlength=n)
    entropy = np.bincount(words, entropies, minlength=n) / np.maximum(np.bincount(words, minlength=n), 1)
    in_sentence = np.bincount(sentences, of_word)[sentences]
    share = of_word / np.where(in_sentence > 0, in_sentence, 1.0)
    return np.asarray(share * entropy * np.bincount(sentences)[sentences] * content, dtype=np.float64)


def query_words(
    attention: npt.NDArray[np.floating],
    words: npt.NDArray[np.integer],
    hits: npt.NDArray[np.integer],
    content: npt.NDArray[np.bool_],
    n: int,
) -> list[int]:
    """Return the indices of the `n` words to which the hits attend most, in the order of the text.

    The hits are the words that need evidence.  A token's attention is read at the previous token, which predicts it,
    and is scaled to shares over all words before the token's own word.  The attention of a hit is the mean over its
    tokens.  Words are ranked by the mean attention that they get from all hits.

    Source: DRAGIN (Su et al., 2024, section 3.2: QFS), in the form of the authors' program.

    Args:
        attention: Attention of the last layer, averaged over heads, of token j (row) to token i (column), when the model reads
            question, chain and sentence alone; shape ``(n_tokens, n_tokens)``.
        words: The word of each token, from 0 to ``n_words - 1``, never decreasing, shape ``(n_tokens,)``.
        hits: Indices of the words that need evidence; they never occur in the query.
        content: False for words that never occur in a query, shape ``(n_words,)``.
        n: Number of words to take; among ties, earlier words first.
    """
    n_words = len(content)
    mean = np.zeros(n_words)
    for hit in hits:
        own = np.flatnonzero(words == hit)
        first = int(own[0])
        for token in own[own > 0]:
            before = np.asarray(attention, dtype=np.float64)[token - 1, :first]
            total = before.sum()
            mean += np.bincount(words[:first], before, minlength=n_words) / (total if total > 0 else 1.0) / len(own)
    allowed = np.array(content, dtype=np.bool_)
    allowed[hits] = False
    order = [place for place in np.argsort(-mean, kind="stable") if allowed[place]]
    return sorted(int(place) for place in order[:n])
