"""The tree of commands: the summary of each, and its function, which is imported when the command is called.

`suffice --help` reads only this table.  Papers and other packages add commands through the entry points of the group
`suffice.commands`: the name of an entry point is a place in the tree, `demo.gate` for `suffice demo gate`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from suffice.cli.groups import expanded, settings_of
from suffice.cli.parameters import (
    SET,
    URL,
    SettingParameter,
    check_set,
    defaults_of,
    is_from_file,
    is_given,
    name_place,
    note_settings,
    replacement,
    settings_in,
    taking_from_file,
)
from suffice.cli.settings import FILE, read_settings
from suffice.common.provided import by_name, load_entry, package_of
from suffice.errors import DataError, MissingExtraError, did_you_mean

_UsageError: Any = typer.BadParameter.__base__  # typer's name for this class differs between versions

COMMANDS = "suffice.commands"
"""The group of entry points."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a command, or of a group of commands, in the tree.

    Attributes:
        summary: One sentence that fits a line of 80 columns beside the name.
        function: The function as ``module:name``; for a group, the function to run without a subcommand.  If empty, a
            command's function comes from an entry point, and a group without a subcommand prints its help.
        panel: The panel in which `suffice --help` lists it.
        example: An example call; it is appended to the function's docstring.
        distribution: The distribution that provides the command by an entry point; empty = the main distribution.  Help
            lists the command only if its distribution is installed.
    """

    summary: str
    function: str = ""
    panel: str = ""
    example: str = ""
    distribution: str = ""


TREE = {
    "demo": Place("Run the whole chain on real questions, offline.", panel="Start", distribution="suffice-reader"),
    "demo watch": Place("Watch a deployed policy while its signal breaks.", distribution="suffice-reader"),
    "init": Place("Write suffice.toml: endpoint, data, prices, loss.", "suffice.cli.init:init_command", "Start"),
    "doctor": Place(
        "Examine an endpoint: what it supports, which rules can run.", "suffice.cli.inspect:doctor", "Start"
    ),
    "record": Place("Record every round of every question, once.", "suffice.cli.recording:record_command", "Start"),
    "convert": Place(
        "Turn a published question set into questions to record.", panel="Start", distribution="suffice-retrieval"
    ),
    "index": Place(
        "Index a corpus of any size, to be searched on disk.", panel="Start", distribution="suffice-retrieval"
    ),
    "import": Place(
        "Turn rounds recorded elsewhere into a recording.", "suffice.cli.importing:import_command", "Start"
    ),
    "merge": Place("Join recordings of several machines or prompts.", "suffice.cli.merging:merge_command", "Start"),
    "draft": Place(
        "Answer and record by drafts and critiques.",
        panel="Start",
        example="suffice draft record 2wiki_tune -o d.parquet --model M --base-url URL",
    ),
    "draft answer": Place(
        "Answer one question by drafts, stopping when the policy says so.", "suffice.cli.drafting:draft_command"
    ),
    "draft record": Place(
        "Record every draft and critique of every question.", "suffice.cli.drafting:record_drafts_command"
    ),
    "sample": Place(
        "Answer and record by independent samples and a vote.",
        panel="Start",
        example="suffice sample record q.jsonl -o s.parquet --model M --base-url URL",
    ),
    "sample answer": Place(
        "Answer one question by samples, stopping when the vote is settled.", "suffice.cli.sampling:sample_command"
    ),
    "sample record": Place("Record every sample of every question.", "suffice.cli.sampling:record_samples_command"),
    "sample order": Place(
        "Put the models of a panel in an order, by accuracy or price.", "suffice.cli.sampling:order_command"
    ),
    "think": Place(
        "Answer and record by a chain of thought with trial answers.",
        panel="Start",
        example="suffice think record q.jsonl -o t.parquet --model M --base-url URL",
    ),
    "think answer": Place(
        "Answer one question by thinking, no longer than the policy says.", "suffice.cli.thinking:think_command"
    ),
    "think record": Place(
        "Record every checkpoint of every chain of thought.", "suffice.cli.thinking:record_thoughts_command"
    ),
    "think ask": Place("Ask for trial answers along the finished chains of a log.", "suffice.cli.thinking:ask_command"),
    "replay": Place(
        "Say what stopping earlier would have saved and lost.", "suffice.cli.offline:replay_command", "Measure"
    ),
    "diagnose": Place(
        "Show where and why a rule stops too early or too late.", "suffice.cli.diagnose:diagnose_command", "Measure"
    ),
    "report": Place(
        "Write one HTML page about recordings and policies.", "suffice.cli.report:report_command", "Measure"
    ),
    "judge": Place(
        "Mark recorded drafts with a judge or gold answers.",
        panel="Measure",
        example="suffice judge gold drafts.parquet -o judged.parquet",
    ),
    "judge drafts": Place("Mark every distinct draft of a recording once.", "suffice.cli.judge:judge_command"),
    "judge pairs": Place(
        "Compare every draft with the last one, in both orders.", "suffice.cli.judge:judge_pairs_command"
    ),
    "judge gold": Place("Measure how near each draft is to its gold answers.", "suffice.cli.judge:judge_gold_command"),
    "run": Place("Make a whole table from one file, cell by cell.", panel="Measure", distribution="suffice-papers"),
    "decide": Place(
        "Say whether to keep a loop, lower its cap, or stop by a rule.", "suffice.cli.advice:decide_command", "Decide"
    ),
    "calibrate": Place(
        "Fit a rule to recorded questions, and write the policy.", "suffice.cli.offline:calibrate_command", "Decide"
    ),
    "search": Place(
        "Try many rules, and choose one within a budget of calls.", "suffice.cli.search:search_command", "Decide"
    ),
    "certify": Place(
        "Certify the cheapest policy whose loss is small enough.", "suffice.cli.certify:certify_command", "Decide"
    ),
    "gate": Place(
        "Train and compare models that may skip retrieval.",
        panel="Decide",
        example="suffice gate states hotpotqa_tune -o tune.states --encoder minilm",
        distribution="suffice-gates",
    ),
    "gate states": Place("Store the hidden states of questions.", distribution="suffice-gates"),
    "gate train": Place("Train a probe that predicts whether the model knows.", distribution="suffice-gates"),
    "gate classify": Place(
        "Fit Adaptive-RAG's classifier: retrieve never, once, or more.", distribution="suffice-gates"
    ),
    "gate compare": Place("Compare gates: what they save, lose, know and cost.", distribution="suffice-gates"),
    "reranker": Place(
        "Align a reranker with what a model prefers.",
        panel="Decide",
        example="suffice reranker train preferences.jsonl -o aligned",
        distribution="suffice-gates",
    ),
    "reranker preferences": Place(
        "Score passages by what they do to a model's confidence.", distribution="suffice-gates"
    ),
    "reranker train": Place("Train a cross-encoder on a model's preferences.", distribution="suffice-gates"),
    "deploy": Place(
        "Write the advised policy, and print the lines to paste.",
        "suffice.cli.deploy:deploy_command",
        "Deploy and inspect",
    ),
    "serve": Place(
        "Decide for loops in other languages, over HTTP.", panel="Deploy and inspect", distribution="suffice-server"
    ),
    "proxy": Place(
        "Record what an agent asks its model, through a proxy.",
        panel="Deploy and inspect",
        distribution="suffice-server",
    ),
    "watch": Place(
        "Say what a log shows of the deployed policy: keep it or not.",
        "suffice.cli.watching:watch_command",
        "Deploy and inspect",
    ),
    "answer": Place(
        "Answer one question from a corpus, stopping by a policy.", "suffice.cli.answer:answer", "Deploy and inspect"
    ),
    "studio": Place(
        "Look at a folder of recordings, policies and logs.", panel="Deploy and inspect", distribution="suffice-server"
    ),
    "data": Place(
        "Show policies, prices and costs, and what rules can read.",
        panel="Deploy and inspect",
        example="suffice data show policy.json",
    ),
    "data show": Place("Show a policy and its certificate.", "suffice.cli.certify:show_command"),
    "data validate": Place(
        "Read files whole, and say whether they are as they were written.", "suffice.cli.validating:validate_command"
    ),
    "data signals": Place("List the signals that rules may read, and named rules.", "suffice.cli.inspect:signals"),
    "data selectors": Place("Compare which round's answer to return.", distribution="suffice-papers"),
    "data prices": Place("List the bundled prices of models.", "suffice.cli.inspect:prices_command"),
    "data costs": Place("Show what each round of a recording costs.", "suffice.cli.inspect:costs_command"),
    "paper": Place(
        "Reproduce a paper beside its published figures.",
        panel="Deploy and inspect",
        example="suffice paper semantic",
        distribution="suffice-papers",
    ),
}


class Group(TyperGroup):
    """A group of the tree, which imports a command only when it is called."""

    place = ""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of this group's direct commands and groups, in the order of the tree."""
        del ctx
        return list(dict.fromkeys(words.split()[-1] for words in _places() if _above(words) == self.place))

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the group; those of the root are hidden, so that the commands fit the screen."""
        parameters = super().get_params(ctx)
        for parameter in () if self.place else parameters:
            cast("Any", parameter).hidden = True
        return parameters

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stand-in for a command with its name and summary only, for the help."""
        words = f"{self.place} {cmd_name}".strip()
        if cmd_name not in self.list_commands(ctx):
            return None
        if words in TREE:
            place = TREE[words]
        else:
            try:
                return command_at(words)
            except DataError:  # help must work even if another package is broken
                place = Place("It cannot be loaded; call it to see why.")
        return TyperCommand(
            cmd_name, help=place.summary, rich_help_panel=place.panel or None, rich_markup_mode="rich", callback=None
        )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import and return a command, with its name and its arguments."""
        name, *rest = args
        words = f"{self.place} {name}".strip()
        if words in _places():
            command = command_at(words)
            # Help must work even if the file is wrong.
            if FILE.exists() and name != "init" and not {"--help", "-h"} & set(rest):
                ctx.default_map = {name: defaults_of(command, rest, read_settings(), every_setting)}
            return name, command, rest
        if not ctx.resilient_parsing:
            if words in TREE:
                raise MissingExtraError(f"suffice {words}", distribution=TREE[words].distribution)
            ctx.fail(f"there is no command {name!r}.{did_you_mean(name, self.list_commands(ctx))}")
        return None, None, rest


class Command(TyperCommand):
    """A command whose settings come from `suffice.toml` or `--set`, and which reports the values that it takes from the file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; for an unknown option that became a setting, explain how to give the setting."""
        words = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except _UsageError as error:
            advice = replacement(self, getattr(error, "option_name", None) or "", words)
            if advice:
                ctx.fail(advice)
            error.ctx = error.ctx or ctx
            raise
        if ctx.params.get(SET):
            check_set(ctx)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        from_file = [one for one in self.params if is_from_file(ctx, str(one.name))]
        if from_file or is_given(ctx, URL):
            note_settings(ctx, from_file)
        if URL in ctx.params:  # only these commands send a key anywhere
            from suffice.cli.approvals import check_approved

            check_approved(ctx)
        try:
            with taking_from_file(str(one.name) for one in from_file):
                return super().invoke(ctx)
        except typer.BadParameter as error:
            name_place(ctx, error)
            raise


def _above(words: str) -> str:
    return words.rpartition(" ")[0]


@cache
def _plugins() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points that add commands, by their place."""
    return {name.replace(".", " "): entries for name, entries in by_name(COMMANDS).items()}


def _places() -> list[str]:
    """Return the places of all installed commands, in the order of the tree."""
    given = _plugins()
    installed = [
        words
        for words, place in TREE.items()
        if not place.distribution or words in given or any(other.startswith(f"{words} ") for other in given)
    ]
    groups = [above for above in map(_above, given) if above]  # groups that are only named by the commands below them
    return list(dict.fromkeys((*installed, *groups, *given)))


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every place with its command or group, importing all of them."""
    for words in _places():
        yield words, command_at(words)


def every_setting() -> dict[str, set[str]]:
    """Return the names of the settings of all commands, by table; this imports every command."""
    tables: dict[str, set[str]] = {}
    for _, command in commands():
        for name, parameter in settings_in(command.params).items():
            tables.setdefault(parameter.setting.table, set()).add(name)
    return tables


@cache
def command_at(words: str) -> Any:
    """Return the command or group at a place, ready to run.

    Args:
        words: The place, as ``gate train``.

    Raises:
        DataError: Several packages add the command, or its package has an unfit version or cannot be imported; see
            `load_entry`.
    """
    function: Callable[..., Any] | None = None
    place = TREE.get(words, Place(""))
    if words in _plugins():
        if words in TREE and not place.distribution:
            packages = ", ".join(map(package_of, _plugins()[words]))
            raise DataError(f"the command {words!r} is one of suffice, and also in {packages}: uninstall that package")
        function = load_entry(_plugins()[words], f"the command {words!r}")
    elif place.function:
        module, _, name = place.function.partition(":")
        function = getattr(import_module(module), name)
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", cls=type("_Group", (Group,), {"place": words}))
    details, _, example = (inspect.getdoc(function) or "").partition("\n\nExample: ")
    texts: dict[str, Any] = {
        "help": "\n\n".join(filter(None, (place.summary, details))),
        "epilog": f"Example: {place.example or example}",
        "rich_help_panel": place.panel or None,
    }
    name = words.rpartition(" ")[2]
    below = [other for other in TREE | _plugins() if _above(other) == words]
    if below and function is not None and words in TREE and not TREE.keys() & {*below}:
        packages = ", ".join(map(package_of, _plugins()[below[0]]))
        raise DataError(
            f"the command {below[0]!r} of {packages} lies below {words!r}, which is no group: uninstall that package"
        )
    parsed = expanded(function or _nothing)
    if function is None or below:
        bare = function is not None
        app.callback(invoke_without_command=bare, no_args_is_help=not bare, **texts)(parsed)
    else:
        app.command(name, cls=Command, **texts)(parsed)
    command = cast("Any", typer.main.get_command(app))
    command.name = name
    settings = settings_of(parsed)
    for parameter in command.params:
        if parameter.name in settings:
            SettingParameter.of(parameter, settings[parameter.name])
    command.params.sort(key=lambda one: isinstance(one, SettingParameter))  # help lists settings last
    return command


def _nothing() -> None: ...
