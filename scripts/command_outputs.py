"""Run the examples of the commands, and keep what they print for their pages on the site: docs/reference/outputs.

    python -m scripts.command_outputs                 every example; needs PyTorch and llama.cpp, which `make dev` installs
    python -m scripts.command_outputs replay "data signals"

They run one after another in one folder, each with the files that those before it left.  Models are a tiny Llama behind the server
of llama.cpp, which tests teach a made-up world; so replies mean nothing, and everything else is as with any other endpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support import llamacpp

ROOT = Path(__file__).resolve().parents[1]
OUTPUTS = ROOT / "docs" / "reference" / "outputs"
WIDTH = 80
PORT = "http://localhost:8080/v1"
"""The address that the pages show in place of the server's."""
LINES = 70
"""What a page shows of a longer output."""

EXAMPLES = """\
doctor: suffice doctor --model tiny --base-url URL
convert: suffice convert questions.jsonl -o q.jsonl
import: suffice import logs.jsonl -o logs.parquet
decide: suffice decide logs.parquet
deploy: suffice deploy decision.json --to langgraph
record: suffice record hotpotqa_tune -o tune.parquet --limit 60
: suffice record hotpotqa_eval -o eval.parquet --limit 60
calibrate: suffice calibrate tune.parquet -o policy.json --rule tasr
replay: suffice replay eval.parquet --policy policy.json
search: suffice search eval.parquet --tune tune.parquet --budget 3
certify: suffice certify eval.parquet --policy policy.json --max-loss 0.1
diagnose: suffice diagnose eval.parquet --tune tune.parquet --rule tasr
report: suffice report eval.parquet --rule answer_stable -o report.html
merge: suffice merge all.parquet tune.parquet eval.parquet
answer: suffice answer "Where is the tower?" --corpus passages.jsonl --model tiny --base-url URL
index: suffice index passages.jsonl -o passages-index
sample answer: suffice sample answer "Where is the tower?" --model tiny --base-url URL
sample record: suffice sample record questions.jsonl -o samples.parquet --model tiny --base-url URL --limit 8
sample order: suffice sample order panel.parquet -o ordered.parquet
data show: suffice data show policy.json
data validate: suffice data validate policy.json eval.parquet
data signals: suffice data signals
data selectors: suffice data selectors eval.parquet --tune tune.parquet
data prices: suffice data prices gpt-4o-mini
data costs: suffice data costs eval.parquet
demo: suffice demo --limit 40
demo agents: suffice demo agents
demo samples: suffice demo samples
demo semantic: suffice demo semantic
demo thinking: suffice demo thinking
demo watch: suffice demo watch
paper semantic: suffice paper semantic
paper protocol: suffice paper protocol self_refine_gpt4 --metric target_sentiment
gate states: suffice gate states hotpotqa_tune -o tune.states --encoder minilm
gate compare: suffice gate compare 2wiki_llama31_tune
init: suffice init --base-url URL --model tiny
"""
"""A command, and the line that its page shows; a line before a command without a name only prepares."""


def examples() -> list[tuple[str, str]]:
    """Return each command, or an empty text, with its line."""
    return [(words, line.strip()) for words, _, line in (text.partition(":") for text in EXAMPLES.splitlines())]


def prepared(folder: Path) -> None:
    """Write the files that examples start from."""
    (folder / "logs.jsonl").write_bytes((ROOT / "examples" / "logs.jsonl").read_bytes())
    panel = ROOT / "src" / "suffice" / "data" / "recorded" / "panel_gsm8k.parquet"
    (folder / "panel.parquet").write_bytes(panel.read_bytes())
    asked = llamacpp.questions(8, seed=5)
    rows = [
        json.dumps(
            {
                "id": question.question_id,
                "question": question.question,
                "answers": [question.answer],
                "paragraphs": [{"title": passage.title, "text": passage.text} for passage in question.passages],
            }
        )
        for question in asked
    ]
    (folder / "questions.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    texts = {passage.text: passage.title for question in asked for passage in question.passages}
    passages = [json.dumps({"title": title, "text": text}) for text, title in texts.items()]
    (folder / "passages.jsonl").write_text("\n".join(passages) + "\n", "utf-8")


def printed(line: str, folder: Path, url: str) -> str:
    """Return what an example prints, without the machine's addresses and folders.

    Raises:
        RuntimeError: It failed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SUFFICE_", "OPENAI_"))}
    environment |= {
        "NO_COLOR": "1",
        "COLUMNS": str(WIDTH),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = line.replace("URL", url)
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{line!r} ended with {done.returncode}: {done.stderr[-600:]}")
    text = done.stdout.replace(url, PORT).replace(f"{folder}/", "").replace(str(folder), ".")
    lines = [re.sub(r"\s+$", "", one) for one in text.splitlines()]
    if len(lines) > LINES:
        lines = [*lines[:LINES], f"... {len(lines) - LINES} more lines"]
    return "\n".join(lines).strip("\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the examples and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", help="keep only what these print")
    chosen = parser.parse_args(arguments).commands
    OUTPUTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as model, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepared(folder)
        with llamacpp.start_server(llamacpp.stored_model(Path(model) / "tiny")) as server:
            for words, line in examples():
                try:
                    text = printed(line, folder, server.url)
                except RuntimeError as error:
                    print(error, file=sys.stderr)
                    continue
                if words and (not chosen or words in chosen):
                    shown = line.replace("URL", PORT)
                    (OUTPUTS / f"{words.replace(' ', '-')}.txt").write_text(f"$ {shown}\n{text}\n", "utf-8")


if __name__ == "__main__":
    main()
