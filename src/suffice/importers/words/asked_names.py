"""Names of columns with a user's request, beyond the usual names of questions."""

from __future__ import annotations

import re

from suffice.importers.words.names import last_name

_ASKED = re.compile(r"(?P<who>\w+)_(?:question|message|query|prompt)")
_NOT_ASKED = re.compile(
    r"(?:^|_)(?:system|error|status|warning|log|commit|assistant|bot|agent|model|search|sub|rewritten|next|last|final)(?:$|_)"
)


def is_asked_name(name: str) -> bool:
    """Return whether a column's name ends like a name of user requests; such a column has one text per question.

    >>> is_asked_name("customer_question"), is_asked_name("guest_message"), is_asked_name("error_message"), is_asked_name("message")
    (True, True, False, False)
    """
    found = _ASKED.fullmatch(last_name(name))
    return found is not None and not _NOT_ASKED.search(found["who"])
