"""Options for models on this machine, shared by every command that opens one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import BadParameter

from suffice.cli.console import quiet_bars
from suffice.cli.parameters import Setting, given_fields
from suffice.common.json_text import load_json
from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.loops.models import PROMPTS
from suffice.loops.models.prompts import PAPER_PROMPTS, Prompt, prompt as built_in_prompt

DeviceName = Annotated[
    str | None,
    Setting("local", "device", help="Torch's device for models on this machine; default: a GPU if there is one."),
]


@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """Options for running a causal language model on this machine."""

    panel: ClassVar[str] = "Local model"

    device: DeviceName = None
    dtype: Annotated[str, Setting("local", "dtype", help="auto (as stored), float32, bfloat16 or float16.")] = "auto"
    batch_size: Annotated[
        int, Setting("local", "batch-size", min=1, help="Most prompts of one pass; halved where memory runs out.")
    ] = 16
    revision: Annotated[
        str | None, Setting("local", "revision", help="The revision of a hub id; any option takes ID@REVISION, too.")
    ] = None
    template_args: Annotated[
        str,
        Setting(
            "local",
            "template-args",
            help="Variables of the model's chat template, as JSON, for instance to switch thinking off: "
            "'{\"enable_thinking\": false}'.",
        ),
    ] = "{}"

    def open(self, model: str, prompt: Prompt, *, is_main: bool = True, **settings: Any) -> Any:
        """Open a local model, given as a folder or a hub id.

        Args:
            model: The folder, `ID` or `ID@REVISION`.
            prompt: Turns a question into messages.
            is_main: True if the setting `revision` applies to this model.
            **settings: Further arguments of `TransformersModel`.
        """
        quiet_bars()
        name, revision = hub_name(model, self.revision if is_main else None)
        variables = {
            **json_object(self.template_args, "template-args"),
            **settings.pop("chat_template_kwargs", {}),
        }
        return provided("gates.TransformersModel")(
            name,
            prompt=prompt,
            batch_size=self.batch_size,
            dtype=self.dtype,
            device=self.device,
            revision=revision,
            chat_template_kwargs=variables,
            **settings,
        )

    def refuse_unused(self, remedy: str, *useful: str) -> None:
        """Raise if an option of this group was given although no language model runs on this machine.

        Args:
            remedy: Advice for the message, such as an option that runs a language model on this machine.
            *useful: Options that this command uses for something else: `device`, if a reranker or an encoder runs on this
                machine.
        """
        unused = [option for field, option in given_fields(self).items() if field not in useful]
        if unused:
            raise DataError(f"{unused[0]} is for a model that runs on this machine, and there is none: {remedy}")


@dataclass(frozen=True, kw_only=True)
class LocalModel(LocalRun):
    """Options for running a causal language model on this machine, and the text of its prompt."""

    instructions: Annotated[
        str,
        Setting(
            "local", "instructions", help=f"The text of the prompt, one of: {', '.join((*PROMPTS, *PAPER_PROMPTS))}."
        ),
    ] = "answer_first"

    def load(self, model: str, layers: Sequence[int | str], **settings: Any) -> Any:
        """Load a local model, given as a folder or hub id, for reading the states of `layers`."""
        return self.open(model, built_in_prompt(self.instructions), layers=layers, **settings)


def hub_name(text: str, revision: str | None = None) -> tuple[str, str | None]:
    """Return the name and revision of a model given as a folder, `ID` or `ID@REVISION`.

    >>> hub_name("BAAI/bge-reranker-v2-m3@main"), hub_name("org/model", "v2")
    (('BAAI/bge-reranker-v2-m3', 'main'), ('org/model', 'v2'))

    Args:
        text: The folder, id, or id with revision.
        revision: The revision that a separate option gives, for a `text` without a revision.
    """
    name, at, own = text.partition("@")
    if not at or Path(text).exists():
        return text, revision
    if revision is not None and revision != own:
        raise DataError(f"{text!r} names the revision {own!r}, and the setting revision {revision!r}: give one of them")
    return name, own


def json_object(text: str, option: str = "extra-body") -> Mapping[str, Any]:
    """Parse the value of an option that is a JSON object."""
    try:
        value = load_json(text)
    except ValueError as error:
        raise BadParameter(f"{text!r} is not JSON: {error}", param_hint=option) from None
    if not isinstance(value, dict):
        raise BadParameter(f"expected a JSON object, not {text!r}", param_hint=option)
    return value
