"""Logs whose order, copies, transcripts or scores misled the importer when people tried it who knew its manual alone."""

from __future__ import annotations

import json

from benchmarks.readings.cases import Asked, Draw, Log, Loop, shape
from benchmarks.readings.plain import loops


def row(a: Asked, r: int) -> dict[str, object]:
    """Return a row with the number of its round, and without an answer."""
    return {"qid": f"q{a.number}", "question": a.question, "gold": a.gold, "round": r}


@shape("best_of_n.parquet", "huggingface/trl: trl/extras/best_of_n_sampler.py", samples=True, metric="is_correct")
def a_choice_among_samples(draw: Draw) -> Log:
    """A reward model marks the sample that is returned."""
    questions = draw.asked(60, 6, right=(0.5, 0.5))
    made = []
    for a in questions:
        scores = [draw.random.gauss(3.0 * right, 1.0) for right in a.right]
        for r, (text, right, score) in enumerate(zip(a.answers, a.right, scores, strict=True)):
            said = {"prompt_id": f"p{a.number}", "prompt": a.question, "candidate_idx": r, "completion": text}
            made.append({**said, "rm_score": score, "is_correct": right, "chosen": score == max(scores)})
    return Log(made, [a.loop(golds=()) for a in questions])


@shape("transcripts.csv")
def transcripts_of_all_rounds_so_far(draw: Draw) -> Log:
    """Each text begins with the one of the round before."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        text = ""
        for r, answer in enumerate(a.answers, start=1):
            text += f"## Round {r}\n{draw.prose()}\nAnswer: {answer}\n"
            made.append({**row(a, r), "transcript": text})
    return Log(made, loops(questions))


@shape("cells.csv")
def transcripts_cut_by_a_spreadsheet(draw: Draw) -> Log:
    """Cells have no more than 800 characters, so that later answers are lost: nothing can be judged."""
    made = []
    for a in draw.asked(60):
        text = ""
        for r, answer in enumerate(a.answers, start=1):
            text += f"## Round {r}\n{draw.prose(30)}\nAnswer: {answer}\n{draw.prose(30)}\n"
            made.append({**row(a, r), "transcript": text[:800]})
    return Log(made)


@shape("distinct.csv")
def rows_sorted_by_answer(draw: Draw) -> Log:
    """A query has sorted the rows of each question by their answers: the order of the loop is lost."""
    made = [
        {"qid": f"q{a.number}", "question": a.question, "answer": answer, "gold": a.gold}
        for a in draw.asked(80)
        for answer in sorted(a.answers)
    ]
    return Log(made)


def ended(a: Asked) -> int:
    """Return after how many rounds a loop ends by itself."""
    return 2 + a.number % 3


@shape("sheet.csv")
def cells_filled_after_the_end(draw: Draw) -> Log:
    """After its end each loop's last answer fills the cells, with 0 tokens."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        n = ended(a)
        said = {"qid": f"q{a.number}", "question": a.question, "gold": a.gold, "n_rounds": n}
        said |= {f"answer_{r}": a.answers[min(r, n) - 1] for r in range(1, 5)}
        made.append({**said, **{f"completion_tokens_{r}": draw.tokens() * (r <= n) for r in range(1, 5)}})
    return Log(made, [a.loop(answers=a.answers[: ended(a)], scores=a.right[: ended(a)]) for a in questions])


@shape("translations.csv", "mjpost/sacrebleu: sacrebleu/metrics/ter.py", metric="score")
def error_rates_of_drafts(draw: Draw) -> Log:
    """The score of a translation is its edit rate, as another column says."""
    made, read = [], []
    for n in range(60):
        rates = [round(0.9 - 0.1 * r - draw.random.random() / 10, 3) for r in range(4)]
        drafts = [draw.prose(8) for _ in rates]
        pairs = enumerate(zip(drafts, rates, strict=True), start=1)
        made += [{"id": n, "draft": r, "hypothesis": text, "score": rate, "metric": "TER"} for r, (text, rate) in pairs]
        read.append(Loop(question=n, answers=tuple(drafts), scores=tuple(1 - rate for rate in rates)))
    return Log(made, read)


@shape("opinions.jsonl")
def opinions_of_the_model_itself(draw: Draw) -> Log:
    """The score of each answer is what the model thinks of it."""
    questions = draw.asked(60)
    made = [
        {
            **row(a, r),
            "answer": text,
            "score": min(1.0, 0.5 + 0.1 * r + draw.random.random() / 10),
            "score_source": "self",
        }
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    made = [{name: own for name, own in item.items() if name != "gold"} for item in made]
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])


@shape("claims.csv")
def verdicts_on_claims(draw: Draw) -> Log:
    """The model's verdict is True or False, and the label 1 or 0."""
    questions = draw.asked(60, kind="truth")
    made = [
        {"claim_id": f"c{a.number}", "claim": a.question, "round": r, "verdict": str(said), "label": int(a.gold)}
        for a in questions
        for r, said in enumerate(a.answers, start=1)
    ]
    return Log(made, [a.loop(answers=tuple(map(str, a.answers)), golds=(str(a.gold).lower(),)) for a in questions])


@shape("turns.jsonl")
def parameters_by_key(draw: Draw) -> Log:
    """Each turn has its parameters as a list of keys and values."""
    questions = draw.asked(60)
    made = [
        {
            "case_id": str(a.number),
            "inputs": {"question": a.question, "reference": a.gold},
            "turns": [
                {
                    "turn_number": str(r),
                    "params": [
                        {"key": "model_answer", "value": {"string_value": text, "int_value": None}},
                        {"key": "prompt_tokens", "value": {"string_value": None, "int_value": str(draw.tokens())}},
                    ],
                }
                for r, text in enumerate(a.answers, start=1)
            ],
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("critic.jsonl")
def a_writer_and_a_critic_in_a_history(draw: Draw) -> Log:
    """A list has what a writer and a critic say in turn, under roles that no chat has."""
    questions = draw.asked(60)
    made = [
        {
            "task": f"q{a.number}",
            "prompt": a.question,
            "reference": a.gold,
            "history": [
                message
                for text in a.answers
                for message in (
                    {"role": "writer", "content": text},
                    {"role": "critic", "content": f"Not supported, check {draw.prose(2)}."},
                )
            ],
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("jq.json")
def objects_one_after_another(draw: Draw) -> Log:
    """Objects of several lines follow one another without a list around them."""
    questions = draw.asked(60)
    made = [
        {"id": a.number, "question": a.question, "gold": a.gold, "rounds": [{"answer": text} for text in a.answers]}
        for a in questions
    ]
    return Log("\n".join(json.dumps(item, indent=2) for item in made), loops(questions))


@shape("numbered.csv")
def sorted_rows_with_numbers(draw: Draw) -> Log:
    """Rows are sorted by their answers, and a column counts the rounds: nothing is lost."""
    questions = draw.asked(60)
    made = [{**row(a, r), "answer": text} for a in questions for r, text in enumerate(a.answers, start=1)]
    return Log(sorted(made, key=lambda item: (item["qid"], item["answer"])), loops(questions))


@shape("filled.csv")
def cells_filled_without_costs(draw: Draw) -> Log:
    """The number of rounds says after which one cells were filled."""
    questions = draw.asked(60)
    made = [
        {
            "qid": f"q{a.number}",
            "question": a.question,
            "gold": a.gold,
            "rounds_used": ended(a),
            **{f"answer_{r}": a.answers[min(r, ended(a)) - 1] for r in range(1, 5)},
        }
        for a in questions
    ]
    return Log(made, [a.loop(answers=a.answers[: ended(a)], scores=a.right[: ended(a)]) for a in questions])


@shape("judged.jsonl", metric="score")
def scores_of_a_judge(draw: Draw) -> Log:
    """Another column says that a judge gave the score."""
    questions = draw.asked(60)
    made = [
        {**row(a, r), "answer": text, "score": float(right), "score_source": "judge"}
        for a in questions
        for r, (text, right) in enumerate(zip(a.answers, a.right, strict=True), start=1)
    ]
    made = [{name: own for name, own in item.items() if name != "gold"} for item in made]
    return Log(made, [a.loop(golds=()) for a in questions])
