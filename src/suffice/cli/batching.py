"""Options of commands that send their requests in batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import BadParameter, Option

from suffice.cli.parameters import Setting, from_file
from suffice.common.provided import provided


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """Options for sending requests in batches."""

    panel: ClassVar[str] = "Batches"

    batch: Annotated[
        bool,
        Option(
            "--batch",
            help="Send the requests in batches of OpenAI's interface (suffice-scale): a lower price, within a day.",
        ),
    ] = False
    wait: Annotated[
        bool,
        Setting("record", "wait", help="Wait for the batches; without, the same command collects the replies later."),
    ] = True
    batch_file: Annotated[
        Path | None,
        Option(
            "--batch-file",
            help="Write the requests to this .jsonl file, for `vllm run-batch`; the same command reads its *.output.jsonl.",
        ),
    ] = None

    def queue(self) -> Any:
        """Return the queue of batches; None if requests are sent one by one."""
        if not (self.batch or self.batch_file):
            if not self.wait and not from_file("wait"):
                raise BadParameter("there is nothing to wait for without --batch", param_hint="wait")
            return None
        return provided("scale.BatchQueue", "sending requests in batches (--batch)")(
            wait=self.wait, file=self.batch_file
        )
