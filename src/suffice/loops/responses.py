"""The reader of responses for `Round.from_response`, registered so that rounds need not import models.

The interfaces of models are loaded when the first response is read.
"""

from __future__ import annotations

from typing import Any

from suffice.policy.rounds import Reply, read_responses_by


def read_response(response: Any, **options: Any) -> Reply:
    """Return the reply in a response, see `suffice.loops.models.replies.reply_of_response`.

    >>> read_response({"choices": [{"message": {"content": "Oslo"}}]}).answer
    'Oslo'
    """
    from suffice.loops.models.replies import reply_of_response

    return reply_of_response(response, **options)


read_responses_by(read_response)
