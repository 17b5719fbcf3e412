"""Find the list price of a model whose name in a log or reply also contains a provider, a gateway or a date."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from suffice.errors import DataError

if TYPE_CHECKING:
    from suffice.evaluation.replay.prices import Price

_PROVIDERS = re.compile(
    r"^(?:(?:openai|anthropic|azure|azure_ai|bedrock|bedrock_converse|converse|vertex_ai|gemini|google|google-gla|google-vertex|models"
    r"|groq|mistral|mistralai|cohere|deepseek|moonshot|moonshotai|openrouter|litellm|litellm_proxy)/)+"
)
_BEDROCK = re.compile(
    r"^(?:(?:us|us-gov|eu|apac|jp|au|global)\.)?(?:anthropic|openai|meta|mistral|cohere|deepseek)\.(?P<name>.+?)(?:-v\d+)?(?::\d+)?$"
)
_DATED = re.compile(r"[-@](?:20\d{6}|20\d{2}-\d{2}-\d{2})$")
_LATEST = re.compile(r"[-@]latest$")


def listed_name(model: str, prices: Mapping[str, Price]) -> str | None:
    """Return the name under which a model appears in a list of prices; None if the list does not contain the model.

    An entry with exactly the model's name is preferred.  The second choice is an entry that differs only in the provider
    (`openai/`, `us.anthropic.`).  The third choice may also lack the model's date, or have `latest` in its place.  An
    entry with another date is another model.

    >>> listed_name("openai/gpt-4o-2024-08-06", {"gpt-4o": ..., "gpt-4o-2024-05-13": ...})
    'gpt-4o'
    >>> listed_name("us.anthropic.claude-3-5-haiku-20241022-v1:0", {"claude-3-5-haiku-latest": ...})
    'claude-3-5-haiku-latest'
    >>> listed_name("gpt-4o-mini", {"gpt-4o": ...})

    Args:
        model: The model's name in a log or a reply.
        prices: The prices by name.

    Raises:
        DataError: Several entries fit equally well, and their prices differ.
    """
    bare = _without_provider(model)
    undated = _LATEST.sub("", _DATED.sub("", bare))
    by_bare = {name: _without_provider(name) for name in prices}
    own = [name for name in (model, bare) if name in prices][:1]
    own = own or [name for name, other in by_bare.items() if other == bare]
    own = own or [name for name in prices if name == undated]
    own = own or [name for name, other in by_bare.items() if other == undated]
    own = own or [name for name, other in by_bare.items() if _LATEST.sub("", other) == undated]
    if len({prices[name] for name in own}) > 1:
        raise DataError(
            f"the price of {model!r} may be that of {' or '.join(map(repr, own))}, which differ: give the file of --prices an entry "
            f"{model!r} with the right one"
        )
    return own[0] if own else None


def price_in(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return a model's price from a list of prices; None if no entry fits.

    If the entry has another name than the model, the price's field `taken` states both names.

    Args:
        prices: The prices by name.
        model: The model's name, see `listed_name`.

    Raises:
        DataError: Several entries fit equally well, and their prices differ.
    """
    name = listed_name(model, prices)
    if name is None or name == model:
        return None if name is None else prices[name]
    return replace(prices[name], taken=f"{name!r} for {model!r}")


def _without_provider(model: str) -> str:
    name = _PROVIDERS.sub("", model)
    bedrock = _BEDROCK.match(name)
    return bedrock["name"] if bedrock else name
