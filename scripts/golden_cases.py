"""What the golden comparison computes: every case runs the installed `suffice` and returns its result as JSON.

A case speaks to the product by the `suffice` command and the names of `import suffice` alone, so that the same cases run
on releases whose modules lie elsewhere.
"""

from __future__ import annotations

import json
import os
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.golden_bench import ROOT, Bench, checksum, decisions, recorded_rounds

import suffice

RULES = (
    *("answer_stable", "answer_stable_guarded", "margin", "round_aware", "stable_and_overlap", "two_of_four"),
    *("stable_and_entailed", "soft_sum", "fixed_k(4)", "(answer_stable >= 1) | (overlap > 0.3)"),
)
"""Rules that the recordings of evidence can run."""
LIVE = ("tasr.json", *RULES, "never()", "patience(answer_stable >= 1, 2)")


def _made(bench: Bench) -> str:
    """Import 160 made-up questions in 40 clusters with answers, golds, tokens and seconds; return the recording."""
    draws = random.Random(3)  # noqa: S311 - figures that are made up
    lines = []
    for number in range(160):
        hard, gold = draws.random(), draws.choice(("Oslo", "Lima", "Rome"))
        for step in range(1, 6):
            is_right = draws.random() < 0.35 + 0.15 * step - 0.3 * hard
            answer = gold if is_right else draws.choice(("Cairo", "the Oslo fjord", "Lima", "Paris"))
            facts = {"question_id": f"q{number}", "cluster": f"c{number % 40}", "round": step, "answer": answer}
            facts |= {"gold": gold, "input_tokens": 200 * step + draws.randrange(50), "latency": 0.25 * step}
            facts |= {"model": "gpt-4o", "grade": draws.random() < hard}
            lines.append(json.dumps({**facts, "output_tokens": draws.randrange(5, 60)}))
    (bench.folder / "made.jsonl").write_text("\n".join(lines), encoding="utf-8")
    if "made.parquet" not in bench.made:
        bench.made["made.parquet"] = bench.json(
            *("import", "made.jsonl", "-o", "made.parquet", "--metric-column", "grade=grade", "--yes")
        )
    return "made.parquet"


def _import_logs(bench: Bench) -> Any:
    logs = sorted(path.name for path in (ROOT / "tests/data/logs").iterdir() if path.name != "DATA.md")
    return {log: bench.made[bench.imported(log)] for log in logs}


def _import_examples(bench: Bench) -> Any:
    made = [
        bench.imported("logs.jsonl"),
        bench.imported("samples.jsonl", out="rounds.parquet"),
        bench.imported("samples.jsonl", "--samples"),
        bench.imported("verify_cot_date_chatgpt_10.jsonl", "--samples"),
        bench.imported("dylan_math_complex_rounds.jsonl"),
        bench.imported("reflexion_trials.jsonl"),
        bench.imported("ircot_qa_codex_hotpotqa_prompt_set_2.zip"),
        bench.imported("tasr_tune.parquet", out="tune.parquet"),
        bench.imported("tasr_eval.parquet", out="eval.parquet"),
    ]
    made.append(_made(bench))
    return {name: bench.made[name] for name in made}


def _import_traces(bench: Bench) -> Any:
    bench.take("golds.jsonl")
    skipped = {"DATA.md", "golds.jsonl", "versions.json"}
    found = {}
    for path in sorted((ROOT / "tests/data/traces").iterdir()):
        if path.name not in skipped:
            golds = ("--golds", "golds.jsonl") if path.name.startswith(("otlp", "open", "inspect_r", "mlflow")) else ()
            found[path.name] = bench.made[bench.imported(path.name, *golds, out=f"{path.name}.parquet")]
            found[path.name]["report"].pop("by_round", None)
    found["explained"] = bench.json("import", bench.take("docent_log.eval"), "--explain")
    return found


def _decide_logs(bench: Bench) -> Any:
    found = {}
    for path in sorted((ROOT / "tests/data/logs").iterdir()):
        if path.name != "DATA.md" and "recording" in bench.made[bench.imported(path.name)]:
            recording = bench.imported(path.name)
            said = bench.json("decide", recording, "-o", f"decision-{path.stem}.json")
            found[path.name] = {key: value for key, value in said.items() if key not in {"trial", "policy"}}
    return found


def _tasr(bench: Bench) -> tuple[str, str]:
    """Return the recordings of tune and eval questions; the policy that was calibrated is tasr.json."""
    tune = bench.imported("tasr_tune.parquet", out="tune.parquet")
    if not (bench.folder / "tasr.json").exists():
        bench.made["calibration"] = bench.json("calibrate", tune, "--rule", "tasr", "-o", "tasr.json")
    return tune, bench.imported("tasr_eval.parquet", out="eval.parquet")


def _decide(bench: Bench) -> Any:
    tune, evaluated = _tasr(bench)
    logs, samples = bench.imported("logs.jsonl"), bench.imported("samples.jsonl", "--samples")
    panel, drafts = bench.take("panel_gsm8k.parquet"), bench.take("self_refine_gpt4.parquet")
    calls: dict[str, tuple[object, ...]] = {
        "logs": (logs,),
        "logs-strict": (logs, "--max-loss", 0.01, "--risk", 0.1),
        "gsm": (bench.imported("gsm.jsonl"), "--selector", "majority"),
        "logs-baseline": (logs, "--baseline", "fixed_k(4)", "--set=tune-share=0.5"),
        "tokens": (_made(bench), "--cost", "tokens", "--max-loss", 0.1),
        "money": (_made(bench), "--cost", "money", "--model", "gpt-4.1", "--metric", "em"),
        "grade": (_made(bench), "--metric", "grade", "--max-loss", 0.05),
        "evidence": (evaluated, "--tune", tune),
        "evidence-em": (tune, "--metric", "em", "--max-loss", 0.2),
        "samples": (samples, "--max-loss", 0.1),
        "panel": (panel, "--metric", "match", "--set=orders=20"),
        "drafts": (drafts, "--metric", "target_sentiment"),
        "one-model": (bench.imported("models.jsonl"), "--where", "model=gpt-4o"),
    }
    found = {name: bench.json("decide", *call, "-o", f"{name}.json") for name, call in calls.items()}
    for said in found.values():
        said.pop("trial", None)
    return found


def _continued(bench: Bench) -> Any:
    lines = (bench.folder / bench.take("logs.jsonl")).read_text("utf-8").splitlines(keepends=True)
    (bench.folder / "first.jsonl").write_text("".join(lines[:200]), "utf-8")
    bench.run("import", "first.jsonl", "-o", "growing.parquet", "--yes")
    first = bench.json("decide", "growing.parquet", "-o", "growing.json")
    bench.run("import", "logs.jsonl", "-o", "growing.parquet", "--yes")
    return {"first": first, "continued": bench.json("decide", "growing.parquet", "-o", "growing.json")}


def _options(name: str, values: Sequence[object]) -> list[object]:
    return [word for value in values for word in (name, value)]


def _replay_evidence(bench: Bench) -> Any:
    _, evaluated = _tasr(bench)
    return bench.json(
        "replay", evaluated, *_options("--rule", RULES), *_options("--metric", ("f1", "em")), "--policy", "tasr.json"
    )


def _replay_intervals(bench: Bench) -> Any:
    _, evaluated = _tasr(bench)
    return {
        name: bench.json("replay", evaluated, "--rule", "answer_stable", f"--set=interval={name}")
        for name in ("percentile", "bca", "t")
    }


def _replay_options(bench: Bench) -> Any:
    _, evaluated = _tasr(bench)
    two: tuple[object, ...] = ("--rule", "answer_stable", "--rule", "margin")
    calls: dict[str, tuple[object, ...]] = {
        "em": (evaluated, *two, "--metric", "em", "--set=level=0.9", "--set=seed=7", "--set=resamples=300"),
        "agreement": (evaluated, *two, "--metric", "agreement", "--baseline", "full", "--set=margin=0.01"),
        "selected": (evaluated, *two, "--selector", "majority", "--max-rounds", 3, "--cost", "calls"),
    }
    return {name: bench.json("replay", *call) for name, call in calls.items()}


def _replay_streamed(bench: Bench) -> Any:
    _, evaluated = _tasr(bench)
    logs = bench.imported("logs.jsonl")
    return {
        "policy": bench.json("replay", evaluated, "--policy", "tasr.json", optional=["--stream"]),
        "rule": bench.json("replay", evaluated, "--rule", "answer_stable", "--metric", "em", optional=["--stream"]),
        "logs": bench.json(
            "replay", logs, "--rule", "answer_stable", "--metric", "agreement", optional=["--stream", "--jobs", "1"]
        ),
    }


def _replay_other(bench: Bench) -> Any:
    drafts = bench.take("self_refine_gpt4.parquet")
    rules = ("--rule", "semantic(0.05, 2)", "--rule", "critic_only", "--rule", "answer_stable")
    priced = ("--model", "gpt-4.1", "--cost")
    return {
        "money": bench.json("replay", _made(bench), "--rule", "answer_stable", *priced, "money", "--set=margin=0.05"),
        "seconds": bench.json(
            "replay", _made(bench), "--rule", "answer_stable", *priced, "seconds", "--metric", "grade"
        ),
        "logs": bench.json("replay", bench.imported("logs.jsonl"), "--rule", "answer_stable", "--metric", "agreement"),
        "drafts": bench.json("replay", drafts, *rules, "--metric", "target_sentiment"),
        "drafts-published": bench.json(
            *("replay", drafts, *rules, "--metric", "target_sentiment", "--set=ledger=published", "--baseline", "full")
        ),
    }


def _replay_samples(bench: Bench) -> Any:
    samples = bench.imported("samples.jsonl", "--samples")
    votes = ("--rule", "lead(2)", "--rule", "esc(3)", "--rule", "adaptive_consistency", "--rule", "settled(0.95)")
    return {
        "samples": bench.json("replay", samples, *votes, "--set=orders=30"),
        "samples-waves": bench.json("replay", samples, "--rule", "lead(2)", "--set=orders=30", "--set=wave=4"),
    }


def _replay_panel(bench: Bench) -> Any:
    panel = bench.take("panel_gsm8k.parquet")
    ordered = bench.json("sample", "order", panel, "-o", "ordered.parquet", "--metric", "match")
    words = ("replay", "ordered.parquet", "--metric", "match", "--baseline", "best_single", "--rule", "lead(2)")
    replayed = bench.json(*words)
    for row in replayed["rows"]:
        for key in ("costs", "components", "evaluation"):  # a panel that is paid by calls alone
            row.pop(key)
    return {"order": ordered, "replay": replayed}


def _search_path(bench: Bench) -> Any:
    tune, evaluated = _tasr(bench)
    logs = bench.imported("logs.jsonl")
    return {
        "available": bench.json("search", evaluated, "--tune", tune),
        "parts": bench.json("search", evaluated, "--tune", tune, "--jobs", 1),
        "budget": bench.json("search", evaluated, "--tune", tune, "--budget", 2, "--metric", "em", "--set=patience=2"),
        "agreement": bench.json("search", logs, "--metric", "agreement", "--set=folds=3", "--set=resamples=200"),
    }


def _search_object(bench: Bench) -> Any:
    names = [bench.folder / name for name in _tasr(bench)]
    tune, evaluated = (suffice.read_recording(name) for name in names)
    return {
        "object": suffice.search(evaluated, tune=tune, metric="em").to_dict(),
        "path": suffice.search(names[1], tune=names[0], metric="em").to_dict(),
    }


def _search_samples(bench: Bench) -> Any:
    return bench.json("search", bench.imported("samples.jsonl", "--samples"), "--set=orders=5", "--set=resamples=200")


def _certify(bench: Bench) -> Any:
    tune, evaluated = _tasr(bench)
    rules = ("fixed_k(1)", "fixed_k(2)", "fixed_k(3)", "fixed_k(4)", "answer_stable", "answer_margin > 1")
    (bench.folder / "rules.txt").write_text("\n".join(rules), encoding="utf-8")
    family: tuple[object, ...] = (evaluated, "--rules", "rules.txt")
    moved: tuple[object, ...] = (evaluated, "--policy", "tasr.json", "--path", "p_correct=0.2:0.8:5", "--max-loss", 0.1)
    samples = bench.imported("samples.jsonl", "--samples")
    (bench.folder / "votes.txt").write_text("lead(2)\nlead(3)\nesc(3)\n", encoding="utf-8")
    return {
        "net": bench.json("certify", *family, "--max-loss", 0.15, "-o", "certified.json"),
        "harm": bench.json("certify", *family, "--max-loss", 0.2, "--set=loss=harm", "--metric", "em"),
        "bonferroni": bench.json("certify", *family, "--max-loss", 0.15, "--set=procedure=bonferroni", "--tune", tune),
        "moved": bench.json("certify", *moved),
        "samples": bench.json("certify", samples, "--rules", "votes.txt", "--max-loss", 0.1, "--set=orders=20"),
    }


def _diagnose(bench: Bench) -> Any:
    tune, evaluated = _tasr(bench)
    shown = bench.json("diagnose", evaluated, "--tune", tune, "--policy", "tasr.json", "--set=resamples=100")
    bench.made["diagnosed signals"] = shown.pop("signals", None)
    return shown


def _diagnose_signals(bench: Bench) -> Any:
    if "diagnosed signals" not in bench.made:
        _diagnose(bench)
    return bench.made["diagnosed signals"]


def _diagnose_logs(bench: Bench) -> Any:
    return bench.json("diagnose", bench.imported("logs.jsonl"), "--metric", "score", "--set=resamples=100")


def _report(bench: Bench) -> Any:
    tune, evaluated = _tasr(bench)
    words = ("report", evaluated, "--tune", tune, "--rule", "answer_stable", "--policy", "tasr.json")
    code, _, err = bench.run(*words, "--set=resamples=100", "--format", "json", "-o", "report.data")
    page = bench.run(*words, "--set=resamples=100", "-o", "report.html")
    data = json.loads((bench.folder / "report.data").read_text("utf-8")) if code == 0 else err
    html = (bench.folder / "report.html").read_text("utf-8") if page[0] == 0 else ""
    return {"data": data, "headings": re.findall(r"<h[123][^>]*>([^<{]*)<", html)}


def _inspect(bench: Bench) -> Any:
    tune, evaluated = _tasr(bench)
    logs = bench.imported("logs.jsonl")
    return {
        "calibrated": bench.made["calibration"],
        "policy": bench.json("data", "show", "tasr.json"),
        "costs": bench.json("data", "costs", logs),
        "selectors": bench.json("data", "selectors", evaluated, "--tune", tune, "--set=resamples=100"),
        "signals": bench.json("data", "signals"),
        "gold": bench.json("judge", "gold", bench.imported("dylan_math_complex_rounds.jsonl"), "-o", "judged.parquet"),
        "merged": bench.json("merge", "merged.parquet", tune, evaluated),
        "published": bench.json("paper", "semantic"),
    }


def _deploy(bench: Bench) -> Any:
    logs = bench.imported("logs.jsonl")
    bench.run("decide", logs, "-o", "to-deploy.json")
    hosts = (
        *("python", "agent_framework", "autogen", "crewai", "dspy", "google_adk", "haystack", "langchain"),
        *("langgraph", "llama_index", "openai_agents", "pydantic_ai", "smolagents", "strands"),
    )
    return {host: bench.json("deploy", "to-deploy.json", "--to", host, "-o", "deployed.json") for host in hosts}


def _sessions(bench: Bench) -> Any:
    _, evaluated = _tasr(bench)
    questions = [rounds for _, rounds in recorded_rounds(bench.folder / evaluated)]
    found = {}
    for name in LIVE:
        source = suffice.Policy.load(bench.folder / name) if name.endswith(".json") else suffice.Policy(rule=name)
        made = decisions(source, questions)
        rounds = "".join(str(item["stop_round"]) for item in made)
        found[name] = {"stops": rounds, "checksum": checksum(made), "first": made[:2]}
    return found


def _live_log(bench: Bench, name: str, policy: suffice.Policy, n: int, fault: int) -> str:
    """Record a seeded loop that the policy stops; from request `fault` on its margins mean nothing."""
    draws = random.Random(5)  # noqa: S311 - a loop that is made up
    audit = suffice.Audit(rate=0.5, seed=11)
    with suffice.Recorder(bench.folder / name, policy=policy, audit=audit, shadow=["fixed_k(2)"]) as recorder:
        for number in range(n):
            with recorder.question(f"Question {number}?", golds=["yes"], question_id=f"q{number}") as run:
                while not run.done:
                    is_right = draws.random() < 0.3 + 0.2 * run.next_round
                    margin = draws.gauss(2.0 if is_right or number >= fault else -1.0, 1.0)
                    run.observe("yes" if is_right else f"no {draws.randrange(3)}", signals={"answer_margin": margin})
    return name


def _watch(bench: Bench) -> Any:
    policy = suffice.Policy(rule="answer_margin >= 1", max_rounds=3)
    policy.save(bench.folder / "margin.json")
    tune = _live_log(bench, "before.parquet", suffice.Policy(rule="never()", max_rounds=3), 60, 60)
    found = {}
    for name, fault in (("healthy", 80), ("broken", 20)):
        log = _live_log(bench, f"{name}.parquet", policy, 80, fault)
        call = ("watch", log, "--policy", "margin.json", "--metric", "em", "--max-loss", 0.1)
        found[name] = bench.json(*call)
        found[f"{name}-drift"] = bench.json(*call, "--tune", tune, "--set=window=20")
    return found


def _demo(*words: object) -> Callable[[Bench], Any]:
    return lambda bench: bench.json("demo", *words)


def _demo_gate(bench: Bench) -> Any:
    shown = bench.json("demo", "gate")
    for one in [shown["hotpotqa"], shown["2wiki"]]:
        for row in one["rows"]:
            row.pop("random", None)
            row.pop("tune", None)
    shown["hotpotqa_at_rates"] = {rate: item["chosen"] for rate, item in shown["hotpotqa_at_rates"].items()}
    return shown


CASES: dict[str, Callable[[Bench], Any]] = {
    "import_examples": _import_examples,
    "import_logs": _import_logs,
    "import_traces": _import_traces,
    "decide": _decide,
    "decide_logs": _decide_logs,
    "decide_continued": _continued,
    "replay_evidence": _replay_evidence,
    "replay_intervals": _replay_intervals,
    "replay_options": _replay_options,
    "replay_streamed": _replay_streamed,
    "replay_other": _replay_other,
    "replay_samples": _replay_samples,
    "replay_panel": _replay_panel,
    "search_path": _search_path,
    "search_object": _search_object,
    "search_samples": _search_samples,
    "certify": _certify,
    "diagnose": _diagnose,
    "diagnose_signals": _diagnose_signals,
    "diagnose_logs": _diagnose_logs,
    "report": _report,
    "inspect": _inspect,
    "deploy": _deploy,
    "sessions": _sessions,
    "watch": _watch,
    "demo": _demo("--limit", 20),
    "demo_semantic": _demo("semantic"),
    "demo_gate": _demo_gate,
    "demo_samples": _demo("samples", "--set=orders=5"),
    "demo_watch": _demo("watch", "--set=requests=100"),
}
"""All cases by name.  `demo rivals` and `demo tiny-model` train in torch, for minutes, and are left out."""

FAST = ("import_examples", "decide_continued", "replay_options", "replay_streamed", "certify", "deploy", "sessions")
"""Cases that take seconds, and use no model that depends on the processor."""


def _outcome(case: Callable[[Bench], Any], bench: Bench) -> Any:
    try:
        return case(bench)
    except Exception as error:  # noqa: BLE001 - what a release cannot do is a difference like any other
        return {"raised": f"{type(error).__name__}: {error}"}


def results(names: Sequence[str], folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name and the result of each case, run in a folder of the caller's, which one set of cases shares."""
    before = dict(os.environ)
    os.environ.update({"COLUMNS": "100", "NO_COLOR": "1", "XDG_CONFIG_HOME": str(folder / "config")})
    bench = Bench(folder)
    try:
        for name in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield name, _outcome(CASES[name], bench)
    finally:
        os.environ.clear()
        os.environ.update(before)
