"""Find the tokens that spell a span of the text, however the endpoint writes its tokens.

Tokens are matched against the UTF-8 bytes of the text, because a token may be part of a character.  All possible
alignments are tried. If two of them disagree about the span, the result is None, because nobody would notice a margin
that is read at a wrong token.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from suffice.policy.rounds import Token

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

_Span = tuple[int, int]
_State = tuple[int, int, int, int]
"""A path over the text: bytes matched, first and last token of the span (-1 until reached), tokens past the text."""


def _byte_level() -> dict[str, int]:
    """Return the alphabet in which the vocabularies of GPT-2 and Llama 3 spell bytes; printable bytes are unchanged."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level()


def token_bytes(token: Token) -> bytes:
    r"""Return the bytes of a token: `Token.raw` if given, else the bytes of its text, decoded from a vocabulary's spelling.

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


def _search(target: bytes, tokens: Sequence[Token], begin: int, span: _Span) -> _Span | None:
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
    """Yield every position at which a token that starts at `start` may end; if the text cuts it off, the end of the text."""
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
