"""Options for retrieving evidence, either once or step by step by a method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from typer import Option

from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.loops import RetrievalLoop
from suffice.loops.models import Answerer, Gate


@dataclass(frozen=True, kw_only=True)
class LoopOptions:
    """Options for retrieving evidence, either once or step by step."""

    panel: ClassVar[str] = "Loop"

    loop: Annotated[
        str | None,
        Option(
            "--loop",
            help="A method that asks for its own evidence: self_ask, ircot, flare or dragin (suffice-retrieval), with settings as in "
            "'flare(theta=0.6)'; prompt='FILE.toml' has the examples of a paper. Default: passages are ranked once, by the question.",
        ),
    ] = None

    @cached_property
    def method(self) -> Any:
        """The method that retrieves step by step; None for retrieving once."""
        return None if self.loop is None else provided("retrieval.parse_method")(self.loop)

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities that the method requires of the model."""
        return frozenset() if self.method is None else self.method.needs

    def build(self, model: Answerer, gate: Gate | None, **parts: Any) -> Any:
        """Build the loop; `parts` are retriever, policy and enrichers."""
        if self.method is None:
            return RetrievalLoop(model=model, gate=gate, **parts)
        if gate is not None:
            raise DataError(f"--loop {self.method.name} decides itself when to retrieve: leave out the gate")
        return provided("retrieval.QueryLoop")(method=self.method, model=model, **parts)
