"""Read a reply: its thinking blocks, its stated confidence, and the span of its answer in characters and tokens.

Tokens are matched against the UTF-8 bytes of the text, because a token may be part of a character.  All possible
alignments are tried. If two of them disagree about the span, the result is None, because nobody would notice a margin
that is read at a wrong token.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from suffice.policy.rounds import Token

_OPEN = re.compile(r"<(?:think|thinking|thought)>|\[THINK\]|<\|channel>", re.IGNORECASE)
_END_OF_THINKING = re.compile(r"</(?:think|thinking|thought)>|\[/THINK\]|<channel\|>", re.IGNORECASE)
_CHANNEL = "<|channel|>"
_MESSAGE = "<|message|>"

# Every repeat is bounded: a reply may be a megabyte of spaces.
_NAME = r"(?<![\w-])confidence(?:\s(?:level|score|rating))?(?:\s?\([^()\n]{0,30}\))?[*_`\"'\s]{0,4}"
CONFIDENCE_LABEL = re.compile(rf"{_NAME}(?:[:=]|[-\u2013\u2014]?[*_`\s]{{1,4}}\d(?!\w))", re.IGNORECASE)
"""Where a stated confidence begins: the label with its separator, or the label right before a number."""

_STATED_CONFIDENCE = re.compile(
    rf"{_NAME}(?:[:=]|[-\u2013\u2014]|\bis\b)?[*_`\"'\s(<\[]{{0,8}}"
    r"(?P<number>[-+]?[0-9]+(?:[.,][0-9]+)?)"
    r"(?P<rest>\s?%|\s?(?:/|out\sof|of)\s?[0-9]+|[-\u2013\u2014][0-9])?",
    re.IGNORECASE,
)
_CONFIDENCE_MARKS = frozenset("12345")


def strip_thinking(text: str) -> tuple[int, str]:
    """Return the position at which the visible part of a generated text starts, and this part.

    This function knows the tags `<think>`, `<thinking>`, `<thought>` (even if the opening tag was in the prompt), `[THINK]`
    and channels (`<|channel|>final<|message|>`, `<|channel>thought ... <channel|>`).  A text that ends while thinking
    has no visible part: `(len(text), "")`.

    >>> strip_thinking("<think>Answer: no</think>Answer: yes")
    (25, 'Answer: yes')
    >>> strip_thinking("<think>Answer: no")
    (17, '')
    """
    start = 0
    if _CHANNEL in text:
        final = text.rfind(f"{_CHANNEL}final")
        message = text.find(_MESSAGE, final) if final >= 0 else -1
        start = message + len(_MESSAGE) if message >= 0 else len(text)
    for match in _END_OF_THINKING.finditer(text, start):
        start = match.end()
    if _OPEN.search(text, start):
        start = len(text)
    return start, text[start:]


def split_thinking(text: str) -> tuple[str, str | None]:
    """Split a text into the thinking, without tags, and the reply; the reply is None if the text ends while thinking.

    >>> split_thinking("<think>6 times 7</think>42"), split_thinking("<think>6 times"), split_thinking("42")
    (('6 times 7', '42'), ('6 times', None), ('', '42'))
    """
    start, visible = strip_thinking(text)
    if not start:
        return "", text
    begins, ends = _OPEN.search(text), _END_OF_THINKING.search(text)
    thinking = text[begins.end() if begins else 0 : ends.start() if ends else len(text)]
    return thinking, visible if ends else None


def parse_confidence(text: str) -> float:
    r"""Return the confidence that a reply states, an integer in 1..5; NaN if the reply states no confidence on this scale.

    The confidence is the number after the first `Confidence` outside thinking blocks, in prose, markdown or JSON.  Other
    scales are not converted: `90%`, `8/10`, `0.9` and also `1.0` (the top of a scale up to 1) give NaN. So does `<1-5>`,
    which a reply may repeat from the prompt.  Source: TASR, section 3.2 (verbalised confidence).

    >>> parse_confidence("Answer: Paris\n**Confidence:** 4/5")
    4.0
    >>> parse_confidence('{"answer": "Paris", "confidence": 5}'), parse_confidence("Confidence: 90%")
    (5.0, nan)
    """
    stated = _STATED_CONFIDENCE.search(strip_thinking(text)[1])
    if stated is None or stated["number"] not in _CONFIDENCE_MARKS:
        return float("nan")
    rest = (stated["rest"] or "").strip()
    if rest and not (rest[0] in "/oO" and re.sub(r"\D", "", rest) == "5"):
        return float("nan")
    return float(stated["number"])


Span = tuple[int, int]

# No group has a possessive quantifier: before Python 3.11.4, a repetition that failed could still consume a character.
_LEAD = re.compile(r"(?:\s++|```[A-Za-z]*+\n|\*{2,}+|_{2,}+(?=\s)|[*_`•-](?=\s))*")
_LINE_END = re.compile(r"[\r\n]|<\|[^|<>\s]{1,40}\|>|</s>|<eos>|<end_of_turn>|<turn\|>")
_WRAPPERS = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "`": "`", "*": "*", "_": "_", "<": ">"}  # noqa: RUF001
_BEFORE_CONFIDENCE = " \t,;|([*_-\u2013\u2014"


@lru_cache(maxsize=64)
def _loose(marker: str) -> re.Pattern[str]:
    stem = marker.strip().rstrip(":").rstrip()
    colon = r"[*_`\s]{0,4}[:\uff1a]" if marker.rstrip().endswith(":") else ""
    return re.compile(rf"(?<!\w){re.escape(stem)}{colon}", re.IGNORECASE)


def after_marker(text: str, marker: str, start: int) -> int:
    """Return the position right after the first `marker` at or after `start`; -1 if no marker is there.

    If the exact marker is missing, the search ignores case and allows markdown before the colon.
    """
    position = text.find(marker, start)
    if position >= 0:
        return position + len(marker)
    loose = _loose(marker).search(text, start)
    return loose.end() if loose else -1


def answer_line(text: str, start: int, marker: str) -> Span | None:
    """Return the span of the answer that begins at `start`: one line, without markdown, quotes and confidence.

    White space, markdown and repetitions of the marker are skipped first.
    """
    loose = _loose(marker)
    while True:
        begin = _LEAD.match(text, start).end()  # type: ignore[union-attr]  # matches the empty string
        again = loose.match(text, begin)
        if again is None:
            break
        start = again.end()
    line_end = _LINE_END.search(text, begin)
    end = line_end.start() if line_end else len(text)
    label = CONFIDENCE_LABEL.search(text, begin, end)
    if label:
        end = begin + len(text[begin : label.start()].rstrip(_BEFORE_CONFIDENCE))
    return _clean(text, begin, end)


def _clean(text: str, start: int, end: int) -> Span | None:
    """Return the span without surrounding white space, quotes and markdown; None if nothing is left.

    This function works on indices, because copying the text for each of many layers would take quadratic time in a long
    reply.
    """
    while True:
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        if start >= end:
            return None
        inner = _unwrap(text, start, end)
        if inner == (start, end):
            return inner
        start, end = inner


def _unwrap(text: str, start: int, end: int) -> Span:
    """Return the part of a span inside one layer of quotes or markdown; without such a layer, the whole span."""
    stop = end
    while stop > start and text[stop - 1] in ".,;":
        stop -= 1
    if text.endswith("**", start, stop):
        return (start + 2 if text.startswith("**", start, end) else start), stop - 2
    opening, closing = text[start], _WRAPPERS.get(text[start])
    if closing is None:
        return start, end
    close = text.find(closing, start + 1, end)
    if close > start and close == stop - 1:
        return start + 1, close
    if close < 0 and opening in '"“':  # the generation ended inside the quotation
        return start + 1, end
    return start, end


_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*)"', re.DOTALL)
_PART = re.compile(r'["{}\[\]]')
_PLAIN = re.compile(r"-?[0-9][0-9.eE+-]*+|true\b|false\b")
_COLON = re.compile(r"\s*+:\s*+")
_JSON_BLANK = re.compile(r"(?:\s|\\[nrtbf])*")


def json_value(text: str, field: str, start: int) -> tuple[str, int, int] | None:
    """Return the value of the first key `field` in JSON from `start` on, with its span.

    If there is no such key and `field` contains points, `field` is read as a path of keys: ``a.b`` is the value of `b` in
    the object `a`. Text around the JSON is skipped, and the JSON may be cut off after the value. Only strings, numbers and
    booleans count as values; null, arrays, objects and unterminated strings do not.
    """
    place = _value_of(text, field, text.find("{", start), anywhere=True)
    if place >= 0:
        return _json_value(text, place)
    first, *path = field.split(".")
    place = _value_of(text, first, text.find("{", start), anywhere=True) if path else -1
    for key in path:
        place = _value_of(text, key, place, anywhere=False) if text.startswith("{", place) else -1
    return _json_value(text, place) if place >= 0 else None


def _value_of(text: str, key: str, position: int, *, anywhere: bool) -> int:
    """Return the position where a key's value begins in JSON after `position`, or -1 if the key is missing.

    The key must be a key of the next object itself, not of an object inside it. With `anywhere`, it may be at any place
    after the position.
    """
    depth = 0
    part = _PART.search(text, position) if position >= 0 else None
    while part is not None:
        if part[0] == '"':
            string = _STRING.match(text, part.start())
            if string is None:
                return -1
            colon = _COLON.match(text, string.end())
            if colon and (anywhere or depth == 1) and _decode(string[0]) == key:
                return colon.end()
            position = string.end()
        else:
            depth += 1 if part[0] in "{[" else -1
            position = part.end()
        if not (depth or anywhere):
            return -1
        part = _PART.search(text, position)
    return -1


def _json_value(text: str, start: int) -> tuple[str, int, int] | None:
    plain = _PLAIN.match(text, start)
    if plain:
        return plain[0], plain.start(), plain.end()
    string = _STRING.match(text, start)
    if string is None:
        return None
    answer = (_decode(string[0]) or "").strip()
    begin = _JSON_BLANK.match(text, string.start(1)).end()  # type: ignore[union-attr]  # matches the empty string
    end = begin + len(text[begin : string.end(1)].rstrip())
    return (answer, begin, end) if answer and begin < end else None


def _decode(literal: str) -> str | None:
    try:
        value = json.loads(literal, strict=False)
    except ValueError:
        return None
    # Half a surrogate pair is valid JSON but not valid UTF-8, so it could not be stored.
    return str(value).encode("utf-8", "replace").decode("utf-8")


_MAX_STATES = 256
_MAX_TAIL = 8
_MAX_UNKNOWN = 3
_NON_ASCII = 0x80
_REPLACEMENT = "\ufffd".encode()
_BLANK_PIECE = (b"",)
_CLOSE_THINKING = re.compile(rb"</(?:think|thinking|thought)>|\[/THINK\]|<channel\|>|<\|message\|>", re.IGNORECASE)
_SPECIAL_TOKEN = re.compile(r"\s*(?:<\|?/?[\w.:|-]{1,40}\|?>|\[/?[A-Z_]{2,20}\])\s*")
_BYTE_ESCAPE = re.compile(r"<0x([0-9A-Fa-f]{2})>|\\x([0-9A-Fa-f]{2})")
_SPACE_MARKS = b" \t\r\n\v\f"
_SPACE_RUN = re.compile(rb"[ \t\r\n\v\f]*+")

_State = tuple[int, int, int, int]
"""A path over the text: bytes matched, first and last token of the span (-1 until reached), tokens past the text."""


def _byte_level() -> dict[str, int]:
    """Return the alphabet in which the vocabularies of GPT-2 and Llama 3 spell bytes; printable bytes are unchanged."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level()


def token_bytes(token: Token) -> bytes:
    r"""Return the bytes of a token: `Token.raw` if given, else the bytes that its text spells in a vocabulary's notation.

    >>> [token_bytes(Token(text)) for text in ("\u0120Oslo", "\u2581Oslo", "<0xC3>", " Oslo")]
    [b' Oslo', b' Oslo', b'\xc3', b' Oslo']
    """
    text = token.text
    if token.raw is not None:
        return token.raw
    if not text.isascii() and all(character in _BYTE_LEVEL for character in text):
        return bytes(_BYTE_LEVEL[character] for character in text)
    escape = _BYTE_ESCAPE.fullmatch(text)
    return _utf8(text.replace("\u2581", " ")) if escape is None else bytes([int(escape[1] or escape[2], 16)])


def tokens_of_span(text: str, tokens: Sequence[Token], start: int, end: int) -> tuple[Token, ...] | None:
    """Return the run of tokens that spells `text[start:end]`; None if it cannot be determined with certainty.

    This also works if tokens go on past the text (because the endpoint removed a stop string), if special tokens or
    thinking blocks are not in the text, and if white space was lost between tokens.

    Args:
        text: The generated text.
        tokens: Its tokens in order.
        start: Index of the span's first character, which is not white space.
        end: Index after the span's last character.
    """
    target = _utf8(text)
    first_byte = len(_utf8(text[:start]))
    last_byte = first_byte + len(_utf8(text[start:end])) - 1
    spelled = [_utf8(token.text) if token.raw is None else token.raw for token in tokens]
    whole = b"".join(spelled)
    if whole == target:
        ends = list(accumulate(map(len, spelled)))
        run = bisect_right(ends, first_byte), bisect_right(ends, last_byte)
    else:
        searched = _search(target, tokens, _after_thinking(spelled, whole, target), (first_byte, last_byte))
        if searched is None:
            return None
        run = searched
    first, last = run
    if first > 0 and target[first_byte] >= _NON_ASCII and not spelled[first - 1] and tokens[first - 1].raw is None:
        return None  # some servers send "" for all tokens of a character but the last, which has the whole character
    return tuple(tokens[first : last + 1])


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _after_thinking(spelled: Sequence[bytes], whole: bytes, target: bytes) -> int:
    """Return the index of the first token after a thinking block that the text lacks; 0 if there is no such block."""
    if _CLOSE_THINKING.search(target):
        return 0
    closed = 0
    for match in _CLOSE_THINKING.finditer(whole):
        closed = match.end()
    return bisect_left(list(accumulate(map(len, spelled))), closed) + 1 if closed else 0


def _search(target: bytes, tokens: Sequence[Token], begin: int, span: Span) -> Span | None:
    """Return the indices of the first and last token of a span of bytes if all alignments agree; else None.

    The span includes its last byte.
    """
    content_end = len(target.rstrip(_SPACE_MARKS))
    states: set[_State] = {(0, -1, -1, 0)}
    for index in range(begin, len(tokens)):
        spellings = _spellings(tokens[index])
        skippable = _BLANK_PIECE in spellings or _SPECIAL_TOKEN.fullmatch(tokens[index].text) is not None
        following = set(states) if skippable else set()
        for position, first, last, tail in states:
            if position >= content_end:
                if tail < _MAX_TAIL:
                    following.add((position, first, last, tail + 1))
                continue
            start = _SPACE_RUN.match(target, position).end()  # type: ignore[union-attr]  # matches nothing, too
            for spelling in spellings:
                for end in _ends(target, start, spelling):
                    has_first, has_last = start <= span[0] < end, start <= span[1] < end
                    following.add((end, index if has_first else first, index if has_last else last, 0))
        states = following
        if not states or len(states) > _MAX_STATES:
            return None
    complete = [state for state in states if state[0] >= content_end]
    # Tokens past the text belong to a removed stop string, unless another alignment places all tokens within the text.
    whole = [state for state in complete if state[3] == 0] or complete
    runs = {(first, last) for _, first, last, _ in whole}
    return runs.pop() if len(runs) == 1 else None


def _spellings(token: Token) -> set[tuple[bytes, ...]]:
    """Return the byte strings that a token may represent, without leading white space.

    Each byte string is a sequence of pieces; between two pieces lie bytes that the endpoint replaced.
    """
    text = token.text
    plain = _utf8(text)
    candidates = {plain}
    if token.raw is not None:
        candidates.add(token.raw)
    if _BYTE_ESCAPE.search(text):
        body = text.removeprefix("bytes:")
        candidates.add(
            _BYTE_ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), body).encode("latin-1", "replace")
        )
    if "\u2581" in text:
        candidates.add(_utf8(text.replace("\u2581", " ")))
    if not text.isascii() and all(character in _BYTE_LEVEL for character in text):
        candidates.add(bytes(_BYTE_LEVEL[character] for character in text))
    spellings: set[tuple[bytes, ...]] = {(spelling.lstrip(_SPACE_MARKS),) for spelling in candidates}
    if token.raw is None and _REPLACEMENT in plain:
        spellings.add(tuple(plain.lstrip(_SPACE_MARKS).split(_REPLACEMENT)))
    return spellings


def _ends(target: bytes, start: int, spelling: tuple[bytes, ...]) -> Iterator[int]:
    """Yield every position at which a token that starts at `start` may end.

    A token that reaches beyond the end of the text ends at the end of the text.
    """
    if len(spelling) == 1 and len(target) - start < len(spelling[0]):
        if spelling[0].startswith(target[start:]):
            yield len(target)
        return
    positions = {start}
    for index, piece in enumerate(spelling):
        if index:
            positions = {end for position in positions for end in _unknown_ends(target, position)}
        positions = {position + len(piece) for position in positions if target.startswith(piece, position)}
    yield from positions


def _unknown_ends(target: bytes, position: int) -> Iterator[int]:
    """Yield the possible ends of a replaced part of a character, which has one to three non-ASCII bytes."""
    for end in range(position + 1, min(position + _MAX_UNKNOWN, len(target)) + 1):
        if target[end - 1] < _NON_ASCII:
            return
        yield end
