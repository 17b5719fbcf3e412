"""Further logs that misled the importer when somebody tried it with shapes of their own: scores, stages, units, times and failures."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.readings.cases import CITIES, Draw, Log, shape
from benchmarks.readings.plain import loops

STAGES = ("final", "initial", "revised")


@shape("queries.csv", metric="exec_acc")
def scores_beside_numbered_queries(draw: Draw) -> Log:
    """Queries and their scores in numbered columns; a right query is seldom the gold one word for word."""
    made, read = [], []
    for asked in draw.asked(60, 3, right=(0.5, 0.7)):
        gold = f"SELECT count(*) FROM caravans WHERE stop = {asked.number % 9}"
        forms = {True: (gold, gold.replace("count(*)", "COUNT(id)"), f"{gold};"), False: ("SELECT sum(id) FROM stops",)}
        said = tuple(draw.random.choice(forms[good]) for good in asked.right)
        row: dict[str, Any] = {"": asked.number, "question": asked.question, "gold_sql": gold}
        row |= {f"pred_sql_{r}": text for r, text in enumerate(said)}
        row |= {f"exec_acc_{r}": int(good) for r, good in enumerate(asked.right)}
        made.append({**row, "ex_final": int(asked.right[-1])})
        read.append(asked.loop(answers=said, golds=()))
    return Log(made, read)


@shape("stages.csv")
def stages_in_the_order_of_the_alphabet(draw: Draw) -> Log:
    """Rows are told apart by the words of their stage, and sorted by them: the final answer comes first."""
    questions = draw.asked(60, 3)
    order = (2, 0, 1)
    made = [
        {"qid": a.number, "stage": STAGES[n], "answer": a.answers[r], "gold": a.gold}
        for a in questions
        for n, r in enumerate(order)
    ]
    return Log(made, loops(questions))


@shape("contexts.csv")
def with_and_without_retrieval(draw: Draw) -> Log:
    """One row with retrieval and one without, in any order."""
    questions = draw.asked(60, 2)
    made = []
    for a in questions:
        two = [
            {"id": a.number, "use_retrieval": bool(r), "response": a.answers[r], "reference": a.gold} for r in (0, 1)
        ]
        made += draw.random.sample(two, 2)
    return Log(made, loops(questions))


@shape("shares.csv", metric="match")
def percentages_of_fractions(draw: Draw) -> Log:
    """Gold answers are fractions, answers percentages as often."""
    made, read = [], []
    for asked in draw.asked(60, 3, "whole"):
        shares = [abs(int(value)) % 97 for value in (asked.gold, *asked.answers)]
        texts = [draw.random.choice((f"{n}%", f"{n} %", f"{n / 100:.2f}")) for n in shares[1:]]
        gold = f"{shares[0] / 100:.2f}"
        made += [
            {"id": asked.number, "attempt": r, "prediction": t, "ground_truth": gold} for r, t in enumerate(texts, 1)
        ]
        right = tuple(n == shares[0] for n in shares[1:])
        read.append(asked.loop(golds=(gold,), answers=tuple(texts), scores=right))
    return Log(made, read)


@shape("variants.jsonl")
def variants_of_a_prompt(draw: Draw) -> Log:
    """Each question is asked with two prompts, whose rounds are counted."""
    both = {name: draw.asked(60, 3) for name in ("control", "concise")}
    made, read = [], []
    for one, other in zip(*both.values(), strict=True):
        for name, asked in zip(both, (one, other), strict=True):
            right = tuple(answer == one.gold for answer in asked.answers)
            row = {"query": asked.question, "prompt_variant": name, "expected": one.gold}
            made += [{**row, "iteration": r, "completion": answer} for r, answer in enumerate(asked.answers, 1)]
            read.append(asked.loop(golds=(one.gold,), scores=right))
    return Log(made, read)


@shape("options.jsonl", samples=True)
def letters_before_distractors(draw: Draw) -> Log:
    """Each of several replies begins with its letter, and names another one in brackets."""
    questions = draw.asked(60, 8, "letter")
    made = []
    for asked in questions:
        replies = [
            {"text": f"{a}. That fits best, whereas option {draw.random.choice('ABCDE')} ({draw.prose(2)}) does not."}
            for a in asked.answers
        ]
        made.append({"doc_id": asked.number, "question": asked.question, "target": asked.gold, "generations": replies})
    return Log(made, loops(questions))


@shape("surfaces.csv", metric="match")
def decimal_commas_with_units(draw: Draw) -> Log:
    """Numbers as in German, with points between thousands or without, and a unit."""
    made, read = [], []
    for asked in draw.asked(60, 3, "whole"):
        values = [1000 + abs(int(value)) for value in (asked.gold, *asked.answers)]
        forms = [draw.random.choice((f"{n},5 m²", f"{n // 1000}.{n % 1000:03},5 m²")) for n in values]
        gold, answers = f"{values[0]},5 m²", tuple(forms[1:])
        made += [{"id": asked.number, "round": r, "answer": text, "gold": gold} for r, text in enumerate(answers, 1)]
        right = tuple(n == values[0] for n in values[1:])
        read.append(asked.loop(golds=(gold,), answers=answers, scores=right))
    return Log(made, read)


@shape("fragen.csv")
def columns_in_another_language(draw: Draw) -> Log:
    """No column has a usual name, and the gold answer is as like the answers as another answer would be."""
    questions = draw.asked(60, 3)
    made = [
        {"Frage-Nr": f"F{a.number:03}", "Durchlauf": r, "Antwort": answer, "Lösung": a.gold}
        for a in questions
        for r, answer in enumerate(a.answers, 1)
    ]
    return Log(made, loops(questions))


@shape("tickets.csv")
def times_of_twelve_hours(draw: Draw) -> Log:
    """Rows in any order, with times as Americans write them."""
    questions = draw.asked(60, 3)
    hours = ("9:{:02}:00 AM", "12:{:02}:00 PM", "1:{:02}:00 PM")
    made = [
        {"Time": "1/9/2025 " + hours[r].format(a.number % 60), "id": a.number, "answer": a.answers[r], "gold": a.gold}
        for a in questions
        for r in range(3)
    ]
    draw.random.shuffle(made)
    return Log(made, loops(questions))


@shape("days.csv")
def times_with_day_and_month_exchanged(draw: Draw) -> Log:
    """Rows in any order, with times whose month comes first, in the first days of months."""
    questions = draw.asked(60, 3)
    days = ("01/09/2025 22:{:02}", "01/09/2025 23:{:02}", "02/01/2025 03:{:02}")
    made = [
        {"created": days[r].format(a.number % 60), "id": a.number, "answer": a.answers[r], "gold": a.gold}
        for a in questions
        for r in range(3)
    ]
    draw.random.shuffle(made)
    return Log(made, loops(questions))


@shape("chats.jsonl", metric="match")
def an_example_before_each_question(draw: Draw) -> Log:
    """Every conversation begins with the same question and reply, as an example."""
    questions = draw.asked(60, 3, "whole")
    made = []
    for asked in questions:
        said = [("system", "Solve it."), ("user", "3 rows of 4 eggs?"), ("assistant", "3*4 = 12, so the answer is 12.")]
        said.append(("user", asked.question))
        for r, answer in enumerate(asked.answers):
            said += [("user", "Are you sure?")] * (r > 0)
            said.append(("assistant", f"{draw.prose()} {draw.tokens()}, so the answer is {answer}. I am sure."))
        messages = [{"role": role, "content": text} for role, text in said]
        made.append({"conversation_id": asked.number, "messages": messages, "expected_answer": asked.gold})
    return Log(made, loops(questions))


@shape("observations.csv", metric="match")
def failed_calls_among_observations(draw: Draw) -> Log:
    """Replies in fenced JSON, calls that failed between them, and gold answers in a column of JSON."""
    made, read = [], []
    for asked in draw.asked(60, 3, "whole"):
        values = [{"unit": "g", "value": int(value)} for value in (asked.gold, *asked.answers)]
        second = 0
        for value in values[1:]:
            own = {"traceId": f"t{asked.number}", "metadata": json.dumps({"expected": values[0]})}
            reply = f"```json\n{json.dumps({'note': draw.prose(3), 'answer': value})}\n```"
            for level, text in (("ERROR", reply[:20]),) * (draw.random.random() < 0.2) + (("DEFAULT", reply),):
                made.append(
                    {**own, "startTime": f"2025-07-01T00:{asked.number:02}:{second:02}", "level": level, "output": text}
                )
                second += 3
        answers = tuple(json.dumps(value) for value in values[1:])
        read.append(asked.loop(golds=(json.dumps(values[0]),), answers=answers))
    draw.random.shuffle(made)
    return Log(made, read)


@shape("retried.jsonl")
def attempts_that_were_repeated(draw: Draw) -> Log:
    """A limit of rates left some calls without a reply, and they were repeated under the same number."""
    questions = draw.asked(60, 3)
    made = []
    for asked in questions:
        for row in [
            {"id": asked.number, "attempt": r, "completion": a, "gold": asked.gold}
            for r, a in enumerate(asked.answers, 1)
        ]:
            failed = {**row, "completion": None, "error": "429 Too Many Requests"}
            made += [*[failed] * (draw.random.random() < 0.2), row]
    return Log(made, loops(questions))


@shape("history.jsonl")
def drafts_that_nodes_leave_alone(draw: Draw) -> Log:
    """The states of a graph, newest first: the draft is new only where the critic is next."""
    questions = draw.asked(60, 3)
    made = []
    for asked in questions:
        own, draft = [], ""
        for r, answer in enumerate(asked.answers):
            for step, following in enumerate(("generate", "critique")):
                draft = answer if step else draft
                at = f"2025-05-02T08:{asked.number:02}:{4 * r + 2 * step:02}"
                own.append(
                    {
                        "thread_id": asked.number,
                        "values": {"draft": draft, "gold": asked.gold},
                        "next": [following],
                        "at": at,
                    }
                )
        made += own[::-1]
    return Log(made, loops(questions))


@shape("retries.csv")
def retries_that_are_left(draw: Draw) -> Log:
    """A column counts down how many retries are left, and the rows are in its order."""
    questions = draw.asked(60, 3)
    made = [
        {"id": a.number, "retries_left": left, "response": a.answers[2 - left], "expected": a.gold}
        for a in questions
        for left in range(3)
    ]
    return Log(made, loops(questions))


@shape("ordered.csv")
def stages_in_their_own_order(draw: Draw) -> Log:
    """Rows are told apart by the words of their stage, in the order in which these came."""
    questions = draw.asked(60, 3)
    words = ("draft", "revision", "final")
    made = [
        {"qid": a.number, "stage": words[r], "answer": answer, "gold": a.gold}
        for a in questions
        for r, answer in enumerate(a.answers)
    ]
    return Log(made, loops(questions))


@shape("closed.csv")
def flags_in_the_order_of_the_rows(draw: Draw) -> Log:
    """The second of two rows is marked as final."""
    questions = draw.asked(60, 2)
    made = [
        {"qid": a.number, "is_final": bool(r), "answer": answer, "gold": a.gold}
        for a in questions
        for r, answer in enumerate(a.answers)
    ]
    return Log(made, loops(questions))


@shape("shares_of_funds.csv", metric="match")
def percentages_without_fractions(draw: Draw) -> Log:
    """Gold answers are percentages without their sign, which answers have as often as not."""
    made, read = [], []
    for asked in draw.asked(60, 3, "whole"):
        answers = tuple(draw.random.choice((f"{answer}%", answer)) for answer in asked.answers)
        made += [{"id": asked.number, "round": r, "answer": t, "gold": asked.gold} for r, t in enumerate(answers, 1)]
        read.append(asked.loop(answers=answers))
    return Log(made, read)


@shape("traces.jsonl")
def equal_times_of_newest_first(draw: Draw) -> Log:
    """Times to the second, the newest row first: two rounds of a question have the same time."""
    questions = draw.asked(60)
    made = [
        {
            "id": a.number,
            "created_at": f"2025-03-01T09:{a.number:02d}:{r // 2:02d}",
            "output": a.answers[r],
            "gold": a.gold,
        }
        for a in reversed(questions)
        for r in (3, 2, 1, 0)
    ]
    return Log(made, loops(questions))


@shape("answers.csv", metric="score")
def scores_that_count_from_zero(draw: Draw) -> Log:
    """Answers count from 1 and their scores from 0."""
    questions = draw.asked(60, 3)
    made = [
        {
            "id": a.number,
            **{f"answer_{r + 1}": text for r, text in enumerate(a.answers)},
            **{f"score_{r}": int(good) for r, good in enumerate(a.right)},
        }
        for a in questions
    ]
    return Log(made, [a.loop(golds=()) for a in questions])


@shape("rows.jsonl")
def labels_of_each_round(draw: Draw) -> Log:
    """A label of 0 and 1 says whether the answer of the round is right; it is no gold answer."""
    questions = draw.asked(60)
    made = [
        {"id": a.number, "round": r, "output": text, "label": int(a.right[r - 1])}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])


@shape("samples.jsonl", samples=True)
def responses_in_no_order(draw: Draw) -> Log:
    """Eight responses to each question, drawn independently under a name that does not say so."""
    questions = draw.asked(60, 8, right=(0.6, 0.6))
    made = [{"id": a.number, "question": a.question, "gold": a.gold, "responses": [*a.answers]} for a in questions]
    return Log(made, loops(questions))


def chosen(draw: Draw, n: int = 60) -> list[tuple[Any, list[str], int, list[int]]]:
    """Return questions, the texts of their options, the place of the right one, and the places that were chosen."""
    result = []
    for asked in draw.asked(n, 3, "letter"):
        texts = draw.random.sample(CITIES, 5)
        result.append((asked, texts, "ABCDE".index(asked.gold), ["ABCDE".index(own) for own in asked.answers]))
    return result


@shape("mmlu.jsonl", metric="match")
def numbers_of_options_beside_letters(draw: Draw) -> Log:
    """The gold answer is the number of an option from 0, answers are letters."""
    made, read = [], []
    for asked, texts, gold, places in chosen(draw):
        row = {"id": asked.number, "question": asked.question, "choices": texts, "label": gold}
        made += [{**row, "round": r, "pred": "ABCDE"[own]} for r, own in enumerate(places, start=1)]
        read.append(asked.loop())
    return Log(made, read)


@shape("arc.jsonl", metric="em")
def letters_beside_texts_of_options(draw: Draw) -> Log:
    """The gold answer is the letter of an option, answers are texts of options."""
    made, read = [], []
    for asked, texts, gold, places in chosen(draw):
        choices = {"text": texts, "label": list("ABCDE")}
        row = {"id": asked.number, "question": asked.question, "choices": choices, "answerKey": "ABCDE"[gold]}
        made += [{**row, "round": r, "output": texts[own]} for r, own in enumerate(places, start=1)]
        read.append(asked.loop(answers=tuple(texts[own] for own in places), golds=(texts[gold],)))
    return Log(made, read)


@shape("history.json", "stanfordnlp/dspy: dspy/clients/base_lm.py")
def calls_in_a_history(draw: Draw) -> Log:
    """Calls of a module that answers again, in the order of their times; the question is a field of what the user says."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        for r, text in enumerate(a.answers):
            asked = f"[[ ## question ## ]]\n{a.question}\n\nRespond with the corresponding output fields, starting with `[[ ## answer ## ]]`."
            reply = f"[[ ## reasoning ## ]]\n{draw.prose(6)}\n\n[[ ## answer ## ]]\n{text}\n\n[[ ## completed ## ]]"
            made.append(
                {
                    "prompt": None,
                    "messages": [{"role": "system", "content": draw.prose(4)}, {"role": "user", "content": asked}],
                    "kwargs": {"temperature": 0.7},
                    "response": "ModelResponse(id='chatcmpl-1')",
                    "outputs": [reply],
                    "usage": {"prompt_tokens": draw.tokens(), "completion_tokens": draw.tokens()},
                    "cost": 0.0001,
                    "timestamp": f"2025-05-01T10:{a.number:02d}:{r:02d}.123456",
                    "uuid": f"{a.number}-{r}",
                    "model": "openai/gpt-4o-mini",
                    "response_model": "gpt-4o-mini-2024-07-18",
                    "model_type": "chat",
                }
            )
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])


@shape("protokoll.csv")
def names_in_german(draw: Draw) -> Log:
    """All columns have German names."""
    questions = draw.asked(60)
    made = [
        {"Frage-ID": a.number, "Frage": a.question, "Runde": r, "Antwort": text, "Referenz": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("rizhi.jsonl")
def names_in_chinese(draw: Draw) -> Log:
    """All columns have Chinese names; the model's answer has the name that the gold answer has elsewhere."""
    questions = draw.asked(60)
    made = [
        {"编号": a.number, "问题": a.question, "轮次": r, "答案": text, "参考答案": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("sheet.csv", options=["--column", "answer=Antwort des Bots", "--column", "golds=Soll"])
def merged_cells_of_a_sheet(draw: Draw) -> Log:
    """A sheet in German whose number, question and gold answer are in the first row of each question alone."""
    questions = draw.asked(60, 3)
    made = [
        {
            "Nr.": a.number if r == 0 else "",
            "Frage": a.question if r == 0 else "",
            "Soll": a.gold if r == 0 else "",
            "Durchgang": r + 1,
            "Antwort des Bots": text,
            "Note (1-6)": 1 if a.right[r] else draw.random.randint(2, 5),
        }
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    return Log(made, loops(questions))


@shape("calls.csv", options=["--where", "purpose=answer", "--column", "round="])
def calls_that_count_retries(draw: Draw) -> Log:
    """A row for each call, which plans, answers or checks; `attempt` counts retries, not rounds."""
    questions = draw.asked(60, 3)
    made: list[dict[str, Any]] = []
    for a in questions:
        for text in a.answers:
            for purpose, said in (("plan", draw.prose(4)), ("answer", text), ("check", draw.prose(3))):
                call = {"session_id": f"s{a.number}", "created_at": 1_700_000_000 + len(made), "purpose": purpose}
                made.append({**call, "attempt": draw.random.choice((1, 1, 2)), "response": said, "gold": a.gold})
    return Log(made, loops(questions))
