"""What a user writes first: policies and sessions from text and files, and the verbs at the top of the package."""

import asyncio
import pickle
from pathlib import Path

import pytest

import suffice
from suffice import Policy, Session, import_recording, parse_rule, parse_selector, read_recording, register_rule
from suffice.common.blocking import run_blocking
from suffice.errors import DataError, RuleSyntaxError, UnsettledError


def test_a_policy_takes_rules_and_selectors_as_text():
    policy = Policy(rule="tasr", selector="max_p_correct")
    assert policy == Policy(rule=parse_rule("tasr"), selector=parse_selector("max_p_correct"))
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert Policy().rule == parse_rule("never()")


@pytest.mark.parametrize(("field", "value"), [("rule", suffice.tasr), ("rule", 0.25), ("selector", parse_rule("tasr"))])
def test_a_policy_refuses_what_is_neither_a_rule_nor_text(field, value):
    with pytest.raises(DataError, match=f"{field} must be"):
        Policy(**{field: value})
    if value is suffice.tasr:
        with pytest.raises(DataError, match="Call it"):
            Policy(rule=value)


def test_a_misspelled_rule_says_which_one_may_be_meant():
    with pytest.raises(RuleSyntaxError, match="'tasr'"):
        Policy(rule="tasrr")


def test_a_session_takes_a_policy_a_file_a_rule_or_text(tmp_path):
    policy = Policy(rule="answer_stable", max_rounds=3)
    path = tmp_path / "policy.json"
    policy.save(path)
    for given in (policy, path, str(path)):
        assert Session(given).policy == policy
    for given in ("answer_stable", parse_rule("answer_stable")):
        assert Session(given).policy == Policy(rule="answer_stable")


def test_a_session_on_wrong_text_says_what_to_do(tmp_path):
    with pytest.raises(RuleSyntaxError, match=r"Policy\.load\(path\)"):
        Session("policies/mine")
    with pytest.raises(DataError, match="No such file"):
        Session(tmp_path / "absent.json")
    with pytest.raises(DataError, match=r"Policy\(rule=\.\.\.\)"):
        Policy.load("tasr")


def test_a_rule_is_registered_by_a_decorator():
    @register_rule("test_surface_at")
    def at(k=2):
        return parse_rule(f"fixed_k({k})")

    assert at(3) == parse_rule("test_surface_at(3)") == parse_rule("fixed_k(3)")


def test_blocking_calls_work_where_an_event_loop_runs_and_pass_errors_on():
    async def fails():
        await asyncio.sleep(0)
        raise ValueError("in the coroutine")

    async def notebook():
        run_blocking(fails())

    with pytest.raises(ValueError, match="coroutine"):
        asyncio.run(notebook())


def test_an_interrupt_of_a_notebook_cancels_the_coroutine(monkeypatch):
    from concurrent.futures import Future

    ended = []

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    wait = Future.result

    def interrupted(future, timeout=None):
        if not isinstance(future, Future) or ended or timeout is not None:
            return wait(future, timeout)
        if not future.done() and not hasattr(interrupted, "raised"):
            interrupted.raised = True
            raise KeyboardInterrupt
        return wait(future)

    async def notebook():
        run_blocking(endless())

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(notebook())
    assert ended == ["cancelled"]


CSV = "question_id,depth,answer,golds\nq1,0,Rome,Oslo\nq1,1,Oslo,Oslo\nq2,0,Paris,Paris\n"


def test_importing_asks_how_to_read_what_can_be_read_in_several_ways(tmp_path):
    source, out = tmp_path / "run.csv", tmp_path / "run.parquet"
    source.write_text(CSV)
    with pytest.raises(UnsettledError):
        import_recording(source, kind="tabular", out=out)
    asked = []

    def settle(error):
        asked.append(error.parameter)
        return next(iter(error.choices.values()))[0]

    summary = import_recording(source, kind="tabular", out=out, settle=settle)
    assert asked
    assert summary.path == out
    assert (summary.trajectories, summary.rounds) == read_recording(out).shape == (2, 2)
    assert summary.to_dict()["path"] == str(out)


def test_importing_refuses_an_argument_that_the_format_does_not_take(tmp_path):
    with pytest.raises(DataError, match="'log_golds'"):
        import_recording(Path("any"), kind="tasr", out=tmp_path / "x.parquet", log_golds="keep")
    with pytest.raises(DataError, match="'tabular'"):
        import_recording(Path("any"), kind="tabluar", out=tmp_path / "x.parquet")
