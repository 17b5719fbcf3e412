"""Usual names of columns in logs of answer loops, the clearest names first."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from suffice.recordings.runs import LOOP_NAMES


def words(text: str) -> tuple[str, ...]:
    """Split a text into words; in this package, long lists of names are written as texts with spaces."""
    return tuple(text.split())


ROUND_WORDS = words("round step iteration iter turn attempt trial try draft hop sample revision")
ORDER_WORDS = (*(word for word in ROUND_WORDS if word not in ("sample", "trial", "try")), "loop", "depth")
"""Words in file names that mean rounds; samples and trials are left out, since they may also be runs."""

REPEATS = ("trial", "sample", "try", "repeat")
"""First words of the names of columns that count independent runs as often as rounds."""

_ROUND_NAME = re.compile(
    rf"(?:{'|'.join(ROUND_WORDS)}|loop|depth)(?:_(?:index|idx|number|num|no|nr|id|count|i))?|n_(?:{'|'.join(ROUND_WORDS)})"
    "|(?:completion|candidate)_(?:index|idx|id)|epoch"
)

IDS = words(
    "question_id qid question_idx task_id problem_id example_id instance_id query_id custom_id item_id "
    "dataset_item_id id _id sample_id record_id ticket_id case_id case_no conversation_id thread_id session_id trace_id trace "
    "trajectory_id run_id uid uuid pubid idx index key"
)
RUNS = (
    *sorted(LOOP_NAMES),
    *("run_id", "run", "seed", "agent_id", "agent", "member", "generator", "trial", "attempt", "repeat"),
    *("replicate", "replica", "repetition"),
    *("conversation_id", "session_id", "trace_id"),
)
"""Columns that tell several runs of one question apart."""

QUESTIONS = words(
    "question question_text query query_str user_query user_input problem prompt task instruction input "
    "request goal inputs"
)
SUBJECTS = words("subject text body message title headline claim source")
"""Names of what a ticket or a case asks, if the texts differ from question to question."""

GOLDS = words(
    "golds gold gold_answers gold_answer golden_answers golden_answer ground_truths ground_truth "
    "reference_answers reference_answer references reference expected_answer expected_output expected "
    "correct_answer correct_answers correct_option correct_choice gt gts gt_answer gt_answers groundtruth "
    "ground_truth_answer ground_truth_answers gold_label gold_ans true_answer right_answer answer_key "
    "answer_gold ideal ref refs ref_answer targets target labels label reference_summary reference_text "
    "reference_translation reference_output gold_summary ref_summary truth true_label true_class y_true "
    "correct_label correct_class expected_label expected_class gold_class actual_label accepted_answers acceptable_answers "
    "valid_answers gold_aliases answer_aliases"
)

ARGUMENTS = frozenset(
    words(
        "tool_args tool_arguments tool_input tool_inputs tool_params tool_parameters tool_call args arguments kwargs action "
        "action_input action_inputs action_args function_args function_arguments parameters params"
    )
)
"""Objects with the arguments of a tool."""

_OF_INPUTS = frozenset(words("target targets label labels ref refs reference references expected ideal"))
"""Names that in the input of a step are no gold answers."""


def is_argument(name: str) -> bool:
    """Return whether a nested column is an argument of a tool call or an input of a step, so that it has no gold answers.

    >>> is_argument("tool_input.target"), is_argument("input.label"), is_argument("input.gold_answer"), is_argument("target")
    (True, True, False, False)
    """
    *above, last = plain_name(name).split(".")
    return not ARGUMENTS.isdisjoint(above) or (last in _OF_INPUTS and above[-1:] == ["input"])


OPTION_NUMBERS = words(
    "answer_idx answer_index correct_idx correct_index gold_idx gold_index target_idx target_index "
    "correct_answer_idx correct_answer_index correct_option_idx correct_choice_idx label_idx"
)
"""Names of gold answers that are numbers of options, beside which they are."""

PARSED_ANSWERS = (
    *("answer", "final_answer", "predicted_answer", "model_answer", "parsed_answer", "extracted_answer"),
    *("prediction", "predicted", "pred", "predicted_ans", "pred_answer", "pred_ans", "model_prediction", "y_pred"),
    *(
        "forced_answer",
        "trial_answer",
        "llm_answer",
        "generated_answer",
        "agent_answer",
        "student_answer",
        "answer_text",
        "ans",
        "picked",
    ),
    *("filtered_resp", "predicted_label", "pred_label", "predicted_class", "pred_class"),
)
"""Names of answers parsed from a reply; beside them, a reply is read as the text."""

REPLIES = words(
    "response output completion generation generated_text model_output actual_output model_response reply "
    "draft generated output_text response_text llm_output llm_response resp outputs"
)
WEAK_REPLIES = ("result", "content", "text", "raw_output", "raw_response")
"""Names that also have other meanings."""

ANSWERS = (*PARSED_ANSWERS, *REPLIES)
LABELS = ("label", "labels", "classification", "class", "category", "intent", "sentiment")
"""Names of what a classifier answers, or of the right class."""

TOOL_FIELDS = ("tool_calls", "function_call", "tool_use", "tool_call")
"""Names of the fields of a message with the tools that it calls."""

FEEDBACK = ("feedback", "critique", "critic", "reflection")
MODELS = ("model", "model_name", "model_id", "llm")

NO_ANSWERS = frozenset(
    words(
        "tokens usage cost costs latency timing timings input inputs prompt request context contexts passage "
        "document retrieved observation example reference doc metadata token_usage tokens_used token_count "
        "token_counts"
    )
)
"""Objects whose `output`, `text` or `answer` is not the model's answer."""

SPEAKERS = words(
    "role node event event_type speaker sender author source name type kind step_type span_type span_name "
    "component agent agent_name who actor from sender_type sender_role author_type author_role "
    "speaker_role agent_role from_role"
)
"""Names of who or what an item comes from, or of what it is."""

_PEOPLE_SAY = frozenset(
    words(
        "user human user_proxy customer client visitor guest caller patient student learner buyer subscriber "
        "requester end_user enduser person"
    )
)


def is_person(value: str) -> bool:
    """Return whether a speaker is a person, who asks questions and never answers.

    >>> is_person("Customer"), is_person("end-user"), is_person("bot")
    (True, True, False)
    """
    return plain_name(value) in _PEOPLE_SAY


def is_of_person(name: str) -> bool:
    """Return whether a nested column is a field of a person or account, whose id does not identify a question.

    >>> is_of_person("customer.id"), is_of_person("case.id"), is_of_person("customer")
    (True, False, False)
    """
    return plain_name(name).rpartition(".")[0].rpartition(".")[2] in (
        *_PEOPLE_SAY,
        *("account", "author", "owner", "assignee", "sender", "org", "organization", "tenant", "member", "contact"),
    )


MOST_SPEAKERS = 12
"""More values of such a column name no speakers."""

PEOPLE = frozenset({"user", "user_id", "username", "user_name", "from", "from_id", "bot_id", "app_id", "subtype"})
"""Names of who wrote a message of a chat: a person, or a bot."""

OUTCOME_NAMES = words(
    "correct is_correct correctness answer_correctness passed passing success is_success is_solved solved "
    "resolved verdict grade reward score accuracy em f1 exact_match f1_score tests_outcome"
)
"""Names of outcomes (correct or not, or how well): metrics if all values lie in [0, 1]."""

SYNONYMS = {
    "exact_match": "em",
    "f1_score": "f1",
    "logprob_margin": "answer_margin",
    "answer_logprob_margin": "answer_margin",
    "margin_nats": "answer_margin",
    "logit_margin": "answer_margin",
    "mean_logprob": "answer_logprob_mean",
    "avg_logprob": "answer_logprob_mean",
}
"""Other names of this library's metrics and signals."""

OWN_SIGNALS = words(
    "confidence self_confidence certainty uncertainty margin logprob log_probability entropy perplexity "
    "similarity quality rating critic_score judge_score"
)
"""Names of numbers that a loop may know when it decides; each becomes a signal of the user's own."""


_WORDS = "|".join(sorted(ROUND_WORDS, key=len, reverse=True))
_GAP = r"[_\-. @=]"
_NUMBER_FIRST = re.compile(
    rf"(?:{_WORDS}){_GAP}?(?P<number>\d+)(?:{_GAP}(?P<stem>.+))?|(?:[rtk]|it|gen)?_?(?P<number2>\d+){_GAP}(?P<stem2>[^\d].*)"
)
_MARKED_LAST = re.compile(
    rf"(?P<stem>.*\w){_GAP}(?:{_WORDS}|[rtkv]|it|gen|version|ver){_GAP}?(?P<number>\d+)|(?P<stem2>.*[^\W\d_]\d+){_GAP}(?P<number2>\d+)"
)
_NUMBER_LAST = re.compile(
    rf"(?P<stem>.*?[^\d_\-. @=])(?:{_GAP}(?:{_WORDS}|[rtkv]|it|gen))?{_GAP}?(?P<number>\d+)(?P<rest>_(?:text|str|raw))?"
)


def numbered(name: str) -> tuple[str, int] | None:
    """Split a name that contains a round number into the rest and the number; None if it contains none.

    >>> [numbered(name) for name in ("Answer 1", "round2_answer", "r3.answer", "round_4", "answer")]
    [('answer', 1), ('answer', 2), ('answer', 3), ('', 4), None]
    >>> [numbered(name) for name in ("rouge1_v2", "summary (2)", "summary.2", "summaryV2")]
    [('rouge1', 2), ('summary', 2), ('summary', 2), ('summary', 2)]
    """
    plain = plain_name(name)
    match = _NUMBER_FIRST.fullmatch(plain)
    if match is not None:
        return match["stem"] or match["stem2"] or "", int(match["number"] or match["number2"])
    match = _MARKED_LAST.fullmatch(plain)
    if match is not None:
        return match["stem"] or match["stem2"], int(match["number"] or match["number2"])
    match = _NUMBER_LAST.fullmatch(plain)
    return None if match is None else (match["stem"] + (match["rest"] or ""), int(match["number"]))


def without_steps(names: Sequence[str]) -> list[str]:
    """Remove names that belong to a numbered step, if some other name means a question.

    >>> without_steps(["example.question", "tool_args_0.query"]), without_steps(["column_1", "column_2"])
    (['example.question'], ['column_1', 'column_2'])
    """
    plain = [name for name in names if not any(map(numbered, name.split(".")))]
    return plain if any(last_name(name) in QUESTIONS for name in plain) else [*names]


def round_numbers(names: Iterable[str]) -> list[int] | None:
    """Parse names that are numbers, perhaps after a word for a round; None if any is not.

    >>> round_numbers(["round_1", "round_10"]), round_numbers(["2", "10"]), round_numbers(["gpt-3", "gpt-4"])
    ([1, 10], [2, 10], None)
    """
    numbers = []
    for name in names:
        place = numbered(name)
        if name.isdecimal():
            numbers.append(int(name))
        elif place is not None and not place[0]:
            numbers.append(place[1])
        else:
            return None
    return numbers


def rounds_in_order(value: Mapping[str, Any]) -> list[Any] | None:
    """Return the values of an object in order, if its keys are round numbers from 0 or 1 without gaps; else None."""
    numbers = round_numbers(value)
    if numbers is None or len(numbers) < 2 or min(numbers) > 1:  # noqa: PLR2004
        return None
    ordered = dict(sorted(zip(numbers, value.values(), strict=True), key=lambda pair: pair[0]))
    return [*ordered.values()] if [*ordered] == [*range(min(numbers), min(numbers) + len(value))] else None


_TRANSLATED = {
    "question": "frage pregunta domanda pergunta 问题 問題 質問 题目",
    "answer": "antwort réponse reponse respuesta risposta resposta 答案 回答",
    "round": "runde durchgang durchlauf ronda rodada manche giro runda ronde 轮次 轮数 轮 回合 ラウンド",
    "model": "modell modèle modele modelo modello 模型 模型名称 モデル",
    "step": "schritt étape etape paso passo 步骤 ステップ",
    "turn": "tour turno",
    "attempt": "versuch essai intento tentativo tentativa tentative 尝试",
    "output": "ausgabe sortie salida saída saida 输出 出力",
    "prediction": "vorhersage prédiction predicción predizione 预测",
    "model_answer": "modellantwort réponse_modèle réponse_du_modèle respuesta_modelo respuesta_del_modelo 模型回答 模型答案",
    "reference": "referenz référence referencia riferimento referência gabarito 参考",
    "gold_answer": "lösung loesung musterlösung richtige_antwort korrekte_antwort solution_attendue réponse_attendue réponse_correcte "
    "bonne_réponse respuesta_correcta respuesta_esperada risposta_corretta resposta_correta 参考答案 标准答案 正确答案 正解",
    "correct": "richtig korrekt correcto correcta corretto correto 正确 是否正确",
    "question_id": "frage_id frage_nr fragen_id id_pregunta pregunta_id id_question anfrage_id id_demande demande_id id_solicitud "
    "solicitud_id id_richiesta richiesta_id 编号 问题编号 题号",
    "cost": "kosten coste costo custo coût cout koszt 成本 费用 コスト",
    "price": "preis prix precio prezzo preço preco prijs cena 价格",
    "input_tokens": "jetons_entrée jetons_entree",
    "output_tokens": "jetons_sortie",
}
"""Usual names in German, French, Spanish, Italian, Portuguese, Dutch, Polish, Chinese and Japanese, by the English ones."""

CURRENCIES = words("usd eur gbp chf jpy cny inr")
"""Codes of currencies in names of columns."""

_AMOUNT = re.compile(rf"(?P<what>.+)(?P<unit>_(?:{'|'.join(CURRENCIES)}|[€£¥]))")

_ENGLISH = {name: ours for ours, names in _TRANSLATED.items() for name in names.split()}


_OF_TOKEN_USAGE = {
    **dict.fromkeys(("prompt", "input", "in"), "prompt_tokens"),
    **dict.fromkeys(("completion", "output", "out"), "completion_tokens"),
    "total": "total_tokens",
}
"""The usual names of counts in an object that is called after them."""

_TOKENS = re.compile(r"(?:\w+_)?tok(?:en)?s?(?:_\w+)?")
_OBJECT_OF_TOKENS = re.compile(rf"{_TOKENS.pattern}|(?:\w+_)?usage")


def counts_tokens(name: str, kinds: Collection[str]) -> bool:
    """Return whether a column counts tokens, by its name.

    The name says so itself, or it has a word in `kinds` and is inside an object of token counts.

    >>> [counts_tokens(name, {"sent"}) for name in ("tok_sent", "usage.sent", "usage.cost", "tokenizer")]
    [True, True, False, False]
    """
    path, _, last = plain_name(name).rpartition(".")
    is_within = _OBJECT_OF_TOKENS.fullmatch(path.rpartition(".")[2]) is not None
    return _TOKENS.fullmatch(last) is not None or (is_within and not {*last.split("_")}.isdisjoint(kinds))


@lru_cache(maxsize=1024)
def plain_name(name: str) -> str:
    """Return a name in lower case with underscores; some usual names in other languages are translated.

    >>> plain_name("finalAnswer"), plain_name("Final-Answer "), plain_name("Turn #"), plain_name("Latency (ms)")
    ('final_answer', 'final_answer', 'turn', 'latency_ms')
    >>> plain_name("Frage-Nr"), plain_name("rondas.respuesta")
    ('question_id', 'rondas.answer')
    >>> plain_name("kosten_eur"), plain_name("Coût (€)")
    ('cost_eur', 'cost_€')
    >>> plain_name("response.tokenUsage.completion"), plain_name("tokens.prompt"), plain_name("usage.in")
    ('response.token_usage.completion_tokens', 'tokens.prompt_tokens', 'usage.prompt_tokens')
    """
    spaced = re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"[#($%)\[\]:?]+", " ", unicodedata.normalize("NFC", name)).strip()
    )
    plain = re.sub(r"[\s\-]+", "_", spaced).lower()
    path, point, last = plain.rpartition(".")
    if last in _OF_TOKEN_USAGE and _OBJECT_OF_TOKENS.fullmatch(path.rpartition(".")[2]):
        last = _OF_TOKEN_USAGE.get(last, last)
    amount = _AMOUNT.fullmatch(last)
    what, unit = (amount["what"], amount["unit"]) if amount else (last, "")
    return f"{path}{point}{_ENGLISH.get(what, what)}{unit}"


_ERRORS = re.compile(
    r"(?:\w+_)?(?:exit_?code|exit_status|return_?code|errors?|fail(?:s|ed|ures?)?|wrong|violations|mistakes|wer|cer|ter|loss|distance)"
)


def is_error_count(name: str) -> bool:
    """Return whether a column of this name counts errors, so that 0 is best.

    >>> is_error_count("exit_code"), is_error_count("n_errors"), is_error_count("passed")
    (True, True, False)
    """
    return _ERRORS.fullmatch(last_name(name)) is not None


def ends_with_round(name: str) -> bool:
    """Return whether a column's name ends with a word for a round, as `debate_round` does.

    >>> ends_with_round("debate_round"), ends_with_round("rounding")
    (True, False)
    """
    return plain_name(name).rpartition("_")[2] in ROUND_WORDS


def is_in_order(name: str) -> bool:
    """Return whether a column's name has a word that means rounds in an order.

    >>> is_in_order("model_round_2"), is_in_order("sample_2")
    (True, False)
    """
    return not {*ORDER_WORDS}.isdisjoint(words_in(name))


def in_log(name: str) -> str:
    """Return the name in the log of a column that is kept unchanged.

    In a recording, the column is called `imported_NAME` if NAME has another meaning in this library.

    >>> in_log("imported_text"), in_log("latency")
    ('text', 'latency')
    """
    return name.removeprefix("imported_")


def last_name(name: str) -> str:
    """Return the last part of a dotted name, in lower case with underscores.

    >>> last_name("turns.finalAnswer")
    'final_answer'
    """
    return plain_name(name).rpartition(".")[2]


def single_name(name: str) -> str:
    """Return the singular of a list's name.

    >>> single_name("answers"), single_name("passed"), single_name("prompt_tokens")
    ('answer', 'passed', 'prompt_tokens')
    """
    unit = name.endswith(("tokens", "seconds", "calls", "ss", "correctness"))
    return name if unit or not name.endswith("s") else name[:-1]


def words_in(name: str) -> list[str]:
    """Return the words of a column's name, in lower case.

    >>> words_in("judge.finalScore"), words_in("Latency (ms)")
    (['judge', 'final', 'score'], ['latency', 'ms'])
    """
    return re.split(r"[\W_]+", plain_name(name))


TOTAL_TOKENS = ("tokens", "total_tokens", "n_tokens", "num_tokens", "token_count", "tokens_used", "total_token_count")
"""Names of token counts that do not tell input from output."""

MONEY = ("cost", "cost_usd", "total_cost", "price", "usd", "cost_in_usd", "total_cost_usd", "cost_eur", "price_usd")

TIMES = words("timestamp time ts datetime created_at created start_time started_at logged_at date")
"""Names of the time at which a row was written."""


def is_round_name(name: str) -> bool:
    """Return whether a column's name is usual for round numbers.

    >>> is_round_name("stepIndex"), is_round_name("attempt"), is_round_name("rounding")
    (True, True, False)
    """
    return _ROUND_NAME.fullmatch(plain_name(name)) is not None


def is_pass_name(name: str) -> bool:
    """Return whether a column's name may number passes over a question; it may also mean that an answer passed.

    >>> is_pass_name("Pass"), is_pass_name("pass_no"), is_pass_name("pass_rate")
    (True, True, False)
    """
    return re.fullmatch(r"pass(?:_(?:index|idx|number|num|no|nr|id|i))?", last_name(name)) is not None
