"""What counts as the same answer: numbers, dates, lists, code, and the choice among normalizers with its reason."""

from __future__ import annotations

import itertools
from datetime import datetime
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import UnsettledError
from suffice.policy.comparisons import chosen_normalizer, guess_normalizer, merged_by_words
from suffice.policy.normalizers import NORMALIZERS
from suffice.policy.numbers_in_text import is_number_alone, only_number

SAME = {
    "number": [
        ["-5", "\u22125", "-$5", "$-5", "minus 5", "-5.0", "(-5)", r"\boxed{-5}", "x = -5", "**-5**", "Answer: - 5"],
        ["2", "2.0", "2.", "2 km", "$2", "2 dollars", "2 %", r"2\%", "It is 2.", "2kg", "7 - 5 = 2"],
        ["10.5", "21/2", "10 1/2", "10\u00bd", "1.05e1", "10.50 kg", "10.5kg"],
        ["105", "1.05 x 10^2", r"1.05 \times 10^{2}", "105.00", "\uff11\uff10\uff15"],
        ["1,234", "1234", "1{,}234", "$1,234.00"],
        ["1.234", "1.2340"],
        ["0.05", ".05", "1/20", "5e-2"],
        ["5", "5%", "It is 5!", "45/9"],
        ["1500000", "1.5 million", "$1,500,000"],
        ["24", "2 dozen"],
    ],
    "mixed": [
        ["-5", "-5.0"],
        ["5", "5.0", "$5", "5%", "the 5"],
        ["10.5 km", "21/2 km", "10.50 KM."],
        ["105 km"],
        ["8 mW", "8mW", "0.008 W"],
        ["8 MW", "8000 kW", "8 Mw"],
        ["5 mg", "5 MG", "0.005 g"],
        ["5 Mg", "5 t"],
        ["3L", "3 L", "3000 mL"],
        ["Oslo", "oslo.", "the Oslo"],
        ["[1, 2]", "[1,2]", " [1, 2] "],
        ["(1, 2]"],
        ["a - b"],
        ["a + b"],
        ["(1 + 2) * 3"],
        ["1 + 2 * 3"],
        ["9**9"],
        ["9 9"],
        ["def f(x):\n    return x"],
        ["def f(x):\n    return -x"],
        ["'a.'"],
        ["'a'"],
        ["C++"],
        ["C"],
        ["The The"],
        ["..."],
    ],
    "boolean": [["True", "true", "yes", "Yes.", "**yes**", "Yes, it is."], ["FALSE", "no", "No."]],
    "literal": [
        ["{'a': 1, 'b': None}", '{"b": null, "a": 1}'],
        ["{'x', 'y'}", "{'y', 'x'}"],
        ["[True, [1]]", "[true,[1]]"],
        ["(True, [1])"],
        ["set()"],
        ["{}"],
        ["[1, 2]"],
        ["[2, 1]"],
        ["2"],
        ["2.0"],
        ["'2'", '"2"'],
    ],
    "unordered": [
        ["[1, 2]", "[2,1]", "(2, 1)"],
        ["[1, 2, 2]"],
        ["[1]"],
        ["1"],
        ["Oslo", "['Oslo']"],
        ["a, b", "b;a", '["b", "a"]'],
    ],
    "date": [["2021-05-01", "May 1, 2021", "1st of May 2021", "05/01/2021", "Saturday, May 1st, 2021"], ["01/05/2021"]],
    "date_day_first": [["2021-05-01", "01/05/2021", "1.5.2021", "1 May 2021"], ["05/01/2021"]],
    "percent": [["39 %", r"39\%", "0.39", "39/100"], ["39"]],
    "decimal_comma": [
        ["1.234,5", "1234,50", "1 234,5", "1\u00a0234,5", "1\u202f234,5"],
        ["1,234"],
        ["1.234", "1234", "1 234"],
        ["-3 883 000,25 €", "-3883000,25"],
        ["1.112,5 kg", "1112,5 kg"],
        ["Ja", "ja."],
        ["Nein"],
        ["02.03.2019"],
        ["02.04.2019"],
    ],
    "mixed_comma": [
        ["1.234,5 kWh", "1234,50 kWh", "1,2345 MWh"],
        ["1.234,5 MWh"],
        ["1.234,5", "1 234,5 %"],
        ["12,50 CHF", "CHF 12,5"],
        ["€12,50", "12,5 EUR"],
        ["Ja", "ja."],
    ],
}
"""Of each normalizer: texts of one line are the same, and those of two lines are not."""

UNREAD = {
    "number": (
        *(
            "1.234,5",
            "1,23",
            "1,2,3",
            "1 234",
            "1'000",
            "1.2.3",
            "9 - 4",
            "5-5",
            "9^9^9^9",
            "9**9",
            "5*5",
            "5:5",
            "2 x 3",
        ),
        *(
            "12:30",
            "5 pm",
            "5 + 3i",
            "5/x",
            "> 5",
            "x > 5",
            "x >= 5",
            "x = 1, y = 2",
            "F-16",
            "Answer - 5",
            "5!",
            "-(5)",
        ),
        *(r"\frac{5}{5}", r"\sqrt{5}", r"-\boxed{5}", "5m", "1/0", "5 or -5", "5 +5", "N/A", "nan", "", "1" * 1001),
        *("\u00b15", "1 " * 2, "1" * 400 + "/" + "1" * 601),
    ),
    "mixed": ("N/A", "nan", " none ", "", "  "),
    "boolean": ("1", "0", "note", "yes or no", "N/A", "fal\u017fe"),
    "letter": (
        "A, C",
        "A and C",
        "(A), (C)",
        "A) and B)",
        "A. C.",
        "a/c",
        "B) Paris, C) Rome",
        "B) Paris and (C) Rome",
        "AC",
    ),
    "date": ("31/12/2021", "05/01/21", "03/04", "tomorrow"),
    "date_day_first": ("12/31/2021",),
    "literal": ("", " "),
    "unordered": ("", " "),
    "math": ("N/A", "None", "1.234,5", "1e999999999"),
}


@pytest.mark.parametrize("name", SAME)
def test_texts_of_one_meaning_have_one_key(name):
    keys = [{text: NORMALIZERS[name](text) for text in texts} for texts in SAME[name]]
    for row in keys:
        assert len({*row.values()}) == 1, row
        assert None not in row.values(), row
    assert len({next(iter(row.values())) for row in keys}) == len(keys)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in UNREAD.items() for text in texts])
def test_what_may_mean_two_things_is_not_read(name, text):
    assert NORMALIZERS[name](text) is None


def test_a_number_alone_has_no_words_around_it():
    assert all(map(is_number_alone, ("-5", "$1,200.50", "12 %", "1/2", "2e3")))
    assert not any(map(is_number_alone, ("5 km", "5-6", "1.234,5", "", "1" * 1001)))


NUMBERS = st.fractions(max_denominator=1000).filter(lambda value: abs(value) < 10**12)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.text("0123456789.,-+/^*%$()[]{}'= eEkmx", max_size=12),
    st.sampled_from([text for rows in SAME.values() for row in rows for text in row]),
    st.sampled_from([text for texts in UNREAD.values() for text in texts]),
)
OWN = (
    "qa",
    "exact",
    "number",
    "decimal_comma",
    "mixed",
    "mixed_comma",
    "boolean",
    "letter",
    "literal",
    "unordered",
    "date",
    "date_day_first",
)


@given(DECIMALS)
def test_sign_and_decimal_point_always_count_in_numbers(value):
    assert only_number(f"{value:f}") == Fraction(value)
    assert only_number(f"{value:,f}") == Fraction(value)
    for name in ("number", "mixed"):
        key_of = NORMALIZERS[name]
        assert (key_of(f"{value:f}") == key_of(f"{-value:f}")) == (value == 0)
        assert (key_of(f"{value:f}") == key_of(f"{value * 10:f}")) == (value == 0)


@given(NUMBERS)
def test_a_number_is_its_own_key(value):
    assert NORMALIZERS["number"](str(value)) == str(value) == NORMALIZERS["mixed"](str(value))


@given(TEXTS, TEXTS)
def test_equality_is_an_equivalence_that_white_space_does_not_change(first, second):
    for name in OWN:
        key_of = NORMALIZERS[name]
        assert key_of(first) == key_of(first)
        assert key_of(first) is None or (isinstance(key_of(first), str) and key_of(first) != "")
        assert key_of(f" {first}\n") == key_of(first) or first.strip() != first
        assert (key_of(first) == key_of(second)) == (key_of(second) == key_of(first))


@given(TEXTS)
def test_a_key_of_a_key_is_the_same_key(text):
    for name in ("qa", "exact", "number", "boolean", "letter", "date", "date_day_first"):
        key = NORMALIZERS[name](text)
        assert key is None or len(key) > 1000 or NORMALIZERS[name](key) == key, name


@pytest.mark.parametrize("text", ["N/A", "n/a", "None", "null", "nan", "NaN", "NA", "<NA>"])
def test_words_for_missing_values_are_text_in_four_normalizers(text):
    read = {name for name in (*OWN, "math") if NORMALIZERS[name](text) is not None}
    assert read == {"qa", "exact", "literal", "unordered"}


LITERALS = st.recursive(
    st.one_of(
        st.integers(),
        st.booleans(),
        st.none(),
        st.text("ab-+. ,'", max_size=5),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)),
    max_leaves=5,
)


@settings(max_examples=50)
@given(st.lists(LITERALS, min_size=1, max_size=6))
def test_words_never_compare_literals_of_code(values):
    texts = [repr(value) for value in values]
    pairs = [*itertools.combinations(texts, 2)]
    try:
        name = chosen_normalizer(texts, pairs=pairs).normalizer
    except UnsettledError as error:
        name = next(iter(error.choices.values()))[0]
    if any(value is not None and not isinstance(value, bool | int | float) for value in values):
        assert name == "literal"
    for first, second in pairs:
        if merged_by_words([(first, second)]):
            assert name != "qa"


PROGRAMS = [
    "def f(x):\n    return -x",
    "def f(x):\n    return x",
    "SELECT a FROM t WHERE b > 1",
    "select a from t where b < 1",
    "for (int i = 0; i < 3; i++) {",
    "const x = 1",
    "import os",
]


def test_words_never_compare_programs():
    assert guess_normalizer(PROGRAMS) == "literal"
    assert merged_by_words([("def f(x): return -x", "def f(x): return x"), ("a-b", "a+b")]) == 2
    assert merged_by_words([("The Tempest", "tempest."), ("N/A", "na"), ("a", "b"), ("a", "a")]) == 0


def test_the_choice_says_why():
    assert chosen_normalizer(["yes", "False"], pairs=[("true", "yes")]).normalizer == "boolean"
    assert chosen_normalizer(["yes", "no"], pairs=[("yes", "no")]).normalizer == "qa"  # the metric stays F1
    assert chosen_normalizer(["yes", "no"]).why == "which reads all gold answers"
    assert chosen_normalizer([]) == chosen_normalizer([], ["Oslo"])
    assert chosen_normalizer([], ["Oslo"]).why == "since there are no golds"
    assert chosen_normalizer([], ["5", "-5"]).why.endswith("reads nearly all answers")
    assert chosen_normalizer([], ["[1, 2]", "'-'"]).normalizer == "literal"
    pairs = [("-5", "5"), ("Oslo", "oslo")]
    assert chosen_normalizer(["Oslo", "-5"], pairs=pairs).why.startswith("since 1 of 2 pairs differ in a sign")
    assert chosen_normalizer((), iter(["Oslo", "-5"]), pairs).normalizer == "mixed"
    assert chosen_normalizer(iter(["Oslo", "-5"]), pairs=[("Oslo", "oslo")] * 200 + pairs).normalizer == "qa"


@pytest.mark.parametrize(
    ("golds", "pairs", "names"),
    [
        (["007", "12"], [("7", "007")], ["exact", "number"]),
        (["7", "12"], [("7", "'7'")], ["number", "literal"]),
        (["5 km", "7"], [("5 km", "5 miles")], ["number", "mixed"]),
        (["LX 200", "BA 7"], [("BA 200", "LX 200"), ("BA 7", "BA 7")], ["number", "mixed"]),
        (["18 mm nodule, right lung"], [("18 mm nodule, left lung", "18 mm nodule, right lung")], ["number", "mixed"]),
        (["Q1 2024"], [("Q2 2024", "Q1 2024")], ["exact", "number", "mixed"]),
        (["21.5 °C"], [("21.5 %", "21.5 °C")], ["number", "mixed"]),
        (["12,50 CHF"], [("12,50 EUR", "12,50 CHF")], ["decimal_comma", "mixed_comma"]),
        (["$3,50", "7"], [("£3,50", "$3,50")], ["decimal_comma", "mixed_comma", "exact", "qa"]),
        (["12,5 °C"], [("12,5 %", "12,5 °C")], ["decimal_comma", "mixed_comma"]),
        (
            ["Oslo", "1.234,5 kg"],
            [("1234,5 kg", "1.234,5 kg"), ("2,5 t", "2,5 kg")],
            ["decimal_comma", "mixed_comma", "mixed"],
        ),
        (
            ["5141 EUR"],
            [("5.141 EUR", "5141 EUR"), ("5.141 CHF", "5141 EUR")],
            ["decimal_comma", "mixed_comma", "number"],
        ),
        (["up 21 %"], [("down 21 %", "up 21 %")], ["number", "mixed"]),
        (["$76 million"], [("£76 million", "$76 million"), ("$7", "$8")], ["number", "mixed"]),
        (["a", "B"], [("a", "A")], ["letter", "exact"]),
        (["03/04/2021"], [("03/04/2021", "2021-04-03")], ["date", "date_day_first"]),
        (["3,5", "2"], [], ["decimal_comma", "exact", "qa"]),
        (["1.234,5"], [], ["decimal_comma", "exact", "qa"]),
        (["3\u202f883,0", "12 500,5"], [], ["decimal_comma", "exact", "qa"]),
        (["[1, 2]"], [("[1, 2]", "[2, 1]")], ["literal", "unordered"]),
        (["3.10", "3.9"], [("3.1", "3.10")], ["number", "exact"]),
        (["3.10", "4.20"], [("3.1", "3.10")], ["number", "exact"]),
        (["3.2", "3.20", "4.7"], [("3.20", "3.2")], ["number", "exact"]),
        (["Bxc3", "bxc3"], [("Bxc3", "bxc3"), ("bxc3", "bxc3")], ["exact", "qa"]),
        (["bxc3", "Nf3", "e4"], [("Bxc3", "bxc3")], ["exact", "qa"]),
        (["8 mW", "8 MW"], [("8 mW", "8 MW"), ("8", "8 mW")], ["number", "mixed"]),
    ],
)
def test_a_choice_that_matters_is_asked(golds, pairs, names):
    with pytest.raises(UnsettledError, match="normalizer") as caught:
        chosen_normalizer(golds, pairs=pairs)
    assert [name for name, _ in caught.value.choices.values()] == names
    assert [*caught.value.choices] == [f"--set normalizer={name}" for name in names]


@pytest.mark.parametrize(
    ("golds", "pairs", "name"),
    [
        (["007", "12"], [("007", "007"), ("8", "12")], "number"),
        (["007", *["12"] * 200], [("7", "007")], "number"),
        (["7", "12"], [("07", "7"), ("7 km", "7"), ("7.0", "7"), ("$7", "7 dollars")], "number"),
        (["7", "12"], [("7", "'7'"), *[("7", "7")] * 100], "number"),
        (["$5"], [("$ unknown", "£ unknown"), ("$5", "$5")], "number"),
        (["5 %"], [("5 percent", "5 %"), ("5 per cent", "5 %")], "number"),
        (["42 apples"], [("She has 42 apples left", "42 apples"), ("42", "42 apples")], "number"),
        (["LX 200"], [("BA 207", "LX 200"), ("LX 200", "LX 200")], "number"),
        (["3.50", "2.25", "1.99"], [("3.5", "3.50")], "number"),
        (["3.5", "2.25", "1.99"], [("3.5", "3.50")], "number"),
        (["12", "40", "3.50"], [("3.5", "3.50")], "number"),
        (["78.50", "78.5", "3.25", "4.10"], [("78.5", "78.50")], "number"),
        (["Bxc3", "Oslo"], [("bxc3", "Bxc3")], "qa"),
        (["Neutral", "neutral"], [("Neutral", "neutral"), ("Neutral", "Neutral")], "qa"),
        (["Yes", "yes", "Oslo"], [("yes", "Yes")], "qa"),
        (["Oslo", "oslo"], [(" Oslo", "Oslo")], "qa"),
        (["h2o", "mp3", "b12"], [("H2O", "h2o")], "qa"),
        (["b12", "D3", "Oslo", "Rome"], [("B12", "b12")], "qa"),
        (["e4", "Nf3"], [("YES", "yes"), ("3 KM", "3 km")], "qa"),
        (["A", "B"], [("a", "A")], "letter"),
        (["a", "B"], [("B", "B")], "letter"),
        (["03/04/2021"], [("03/04/2021", "04/03/2021")], "date"),
        (["31/12/2021", "03/04/2021"], [("03/04/2021", "2021-04-03")], "date_day_first"),
        (["05/31/2021", "03/04/2021"], [("03/04/2021", "2021-04-03")], "date"),
    ],
)
def test_a_choice_that_does_not_matter_is_not_asked(golds, pairs, name):
    assert chosen_normalizer(golds, pairs=pairs).normalizer == name


def test_answers_show_which_of_two_numbers_is_the_month():
    said = ["03/04/2021", "31/12/2021"]
    assert chosen_normalizer(["03/04/2021"], said, [("31/12/2021", "31/12/2021")]).normalizer == "date_day_first"
    assert chosen_normalizer(["03/04/2021"], ["12/31/2021"]).normalizer == "date"


def test_percentages_and_fractions_choose_their_comparison():
    mixed, fractions, numbers = [("39 %", "39")] * 9, [("39 %", "0.39")] * 9, [("39 %", "39")] * 999
    assert chosen_normalizer(["0.39"], pairs=[*fractions, ("5", "5 %")][:9]).normalizer == "percent"
    assert chosen_normalizer([], ["39 %", "0.39"], fractions).normalizer == "percent"
    assert chosen_normalizer(["39"], pairs=[*numbers, *fractions]).normalizer == "number"
    with pytest.raises(UnsettledError, match="fractions are both") as error:
        chosen_normalizer(["0.39", "39"], pairs=[*mixed, *fractions])
    assert [*error.value.choices] == ["--set normalizer=percent", "--set normalizer=number"]


def test_points_are_asked_about_where_they_separate_thousands():
    pairs = [("5.141 kg", "5141 kg")] * 9
    with pytest.raises(UnsettledError, match="separate thousands"):
        chosen_normalizer(["5141 kg"], pairs=pairs)
    with pytest.raises(UnsettledError, match="separate thousands"):
        chosen_normalizer([], ["5.141", "5141"], [("5.141", "5141")])
    assert chosen_normalizer(["5141"], pairs=[*pairs, *[("5.0", "5")] * 9]).normalizer == "number"


def test_a_comma_before_a_unit_is_asked_about():
    with pytest.raises(UnsettledError, match="decimal comma"):
        chosen_normalizer(["5.141,5 m²", "12 m²"])


def test_units_after_decimal_commas_count_where_all_answers_say_one():
    pairs = [("2.427,5 MWh", "2.427,5 kWh"), ("511,3 kWh", "511,3 kWh")]
    with pytest.raises(UnsettledError, match="other words") as caught:
        chosen_normalizer(["2.427,5 kWh", "511,3 kWh"], pairs=pairs)
    assert caught.value.confirmed == "--set normalizer=mixed_comma"
    with pytest.raises(UnsettledError, match="other words") as caught:
        chosen_normalizer(["2.427,5 kWh"], pairs=[*pairs, ("511,3", "511,3 kWh")])
    assert caught.value.confirmed == ""


def test_programs_with_one_number_are_no_numbers():
    assert chosen_normalizer(["SELECT a FROM b WHERE c = 7"]).normalizer == "literal"


def test_decimal_commas_beside_words_are_asked_about():
    golds, pairs = ["1.112,5 kg", "Berlin", "Ja"], [("1.112,5 kg", "1112,5 kg"), ("Berlin", "Berlin"), ("Ja", "Nein")]
    with pytest.raises(UnsettledError, match="decimal point"):
        chosen_normalizer(golds, pairs=pairs)
    assert chosen_normalizer(golds, pairs=pairs[1:]).normalizer != "decimal_comma"


def test_texts_that_list_the_same_in_another_order_are_asked_about():
    golds = ["red; blue", "green; pink; grey", "Oslo; Rome"]
    turned = ["blue, red", "grey; green; pink", "Rome, Oslo"]
    with pytest.raises(UnsettledError, match="another order"):
        chosen_normalizer(golds, pairs=[*zip(golds, turned, strict=True)] * 8)
    assert chosen_normalizer(golds, pairs=[(gold, gold) for gold in golds] * 8).normalizer == "qa"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("Council approved {} new trees.", "Bridge closed for {} days."),
        ("Ashby council backs plan for {} homes near the school.", "{} homes in Ashby."),
    ],
    ids=["short ones", "summaries"],
)
def test_sentences_with_the_same_number_alone_are_asked_about(gold, answer):
    golds, answers = ([own.format(n) for n in range(3, 33)] for own in (gold, answer))
    with pytest.raises(UnsettledError, match="other words"):
        chosen_normalizer(golds, answers, list(zip(answers, golds, strict=True)))


def test_a_number_beside_a_sentence_that_says_it_is_one():
    golds = [f"The council of Ashby has approved {n} new trees." for n in range(3, 33)]
    answers = [str(n) for n in range(3, 33)]
    assert chosen_normalizer(golds, answers, list(zip(answers, golds, strict=True))).normalizer == "number"


def test_other_numbers_with_one_unit_are_not_half_right():
    golds = [f"{n} km" for n in range(3, 23)] + ["Oslo", "Rome"] * 10
    answers = [f"{n + 1} km" for n in range(3, 23)] + ["Oslo", "Rome"] * 10
    found = chosen_normalizer(golds, answers, list(zip(answers, golds, strict=True)))
    assert (found.normalizer, "half right" in found.why) == ("mixed", True)


@pytest.mark.parametrize("text", ["4j", "2v", "3h", "5w", "2g"])
def test_a_letter_after_a_digit_is_no_unit(text):
    assert only_number(text) is None


@pytest.mark.parametrize("text", ["4 h", "4 V", "4 kJ", "4kWh", "4 mW", "4 Hz"])
def test_a_unit_leaves_a_number(text):
    assert only_number(text) == 4


IN_WORDS = ("%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y", "%d %B %Y", "%d %b %Y", "%d %B, %Y")
NUMERIC = {"date": ("%m/%d/%Y", "%m-%d-%Y"), "date_day_first": ("%d/%m/%Y", "%d-%m-%Y", "%d.%m.%Y")}
FORMS = (
    "{m} {d}, {y}",
    "{d} {m} {y}",
    "{y}-{n}-{d}",
    "{n}/{d}/{y}",
    "{d}.{n}.{y}",
    "{y}/{n}/{d}",
    "{m}{d}, {y}",
    "{d} {m}, {y}",
)
DATES = st.builds(
    lambda form, parts: form.format(**parts),
    st.sampled_from(FORMS),
    st.fixed_dictionaries(
        {
            "m": st.sampled_from(["May", "sep", "september", "Dec.", "x"]),
            "d": st.sampled_from(["1", "01", "31", "32", "0", "٣"]),
            "y": st.sampled_from(["2021", "21", "20211"]),
            "n": st.sampled_from(["1", "05", "12", "13"]),
        }
    ),
)


@pytest.mark.parametrize("name", NUMERIC)
@given(text=DATES)
def test_a_date_is_what_strptime_reads(name, text):
    expected = None
    for pattern in ("%Y-%m-%d", *IN_WORDS, "%Y/%m/%d", *NUMERIC[name]):
        try:
            expected = datetime.strptime(text, pattern).date().isoformat()
        except ValueError:
            continue
        break
    assert NORMALIZERS[name](text) == expected


CODES = {
    "letters": [("H04L 9/32", "H01M 9/32"), ("G06F 3/01", "G06F 3/01")],
    "zeros": [("007", "7"), ("118", "118")],
}


@pytest.mark.parametrize("kind", CODES)
def test_codes_are_first_offered_as_they_are_written(kind):
    pairs = CODES[kind]
    with pytest.raises(UnsettledError) as asked:
        chosen_normalizer([own for own, _ in pairs], pairs=pairs)
    first, *others = asked.value.choices.values()
    assert first[0] == "exact"
    assert "number" in [name for name, _ in others]


OTHERS = [("LX 200 kg", "BA 200 kg"), ("EUR 42", "USD 42")]


@pytest.mark.parametrize("pair", OTHERS)
def test_what_is_no_code_is_not_offered_as_written(pair):
    with pytest.raises(UnsettledError) as asked:
        chosen_normalizer([pair[0]] * 3, pairs=[pair] * 3)
    assert "--set normalizer=exact" not in asked.value.choices


FIGURES = "Stir the flour and the butter for {} minutes in a pan"


def test_figures_in_prose_are_not_asked_about():
    pairs = [(FIGURES.format(2) + " of iron", FIGURES.format(2)), (FIGURES.format(4), FIGURES.format(3))]
    assert chosen_normalizer([gold for _, gold in pairs], pairs=pairs).normalizer == "qa"


def test_a_figure_after_prose_is_the_answer_beside_short_golds():
    pairs = [(FIGURES.format(2), "2"), (FIGURES.format(4), "3")]
    assert chosen_normalizer(["2", "3"], pairs=pairs).normalizer == "number"


PLACES = ("Terminal 2", "Gate 5", "Pier 7", "Hall 12")


@pytest.mark.parametrize(
    ("other", "chosen"), [("the information desk", "qa"), ("Gate 5 or Gate 6", "qa"), ("Gate 9", "number")]
)
def test_numbered_names_are_words_where_some_answers_are_no_number(other, chosen):
    pairs = [(other, PLACES[0]), *((place, place) for place in PLACES)]
    assert chosen_normalizer(PLACES, pairs=pairs).normalizer == chosen


@pytest.mark.parametrize("golds", [("$5", "EUR 7", "USD 9", "GBP 2"), ("5 km", "7 kg", "9 s", "2 l"), PLACES[:3] * 2])
def test_amounts_and_few_names_are_numbers(golds):
    pairs = [("it depends", golds[0]), *((gold, gold) for gold in golds)]
    assert chosen_normalizer(golds, pairs=pairs).normalizer == "number"


def test_numbered_names_are_numbers_where_answers_leave_the_name_out():
    pairs = [("it depends", PLACES[0]), *((place.split()[1], place) for place in PLACES)]
    assert chosen_normalizer(PLACES, pairs=pairs).normalizer == "number"
