"""The studio's page of a labelling sheet: what it shows, and what it writes."""

from __future__ import annotations

import json

import httpx
import pytest

from suffice.recordings import write_recording
from suffice.verdicts.decisions import Labels
from suffice_server.studio import Folder
from tests.support.cli_tools import cli
from tests.support.studio import opened_studio

pytestmark = pytest.mark.whole

ROWS = [
    {
        "id": "q1",
        "question": "Capital of Peru?",
        "answers": {"A": "Lima", "B": "<b>Quito</b>"},
        "right": None,
        "gold": None,
    },
    {"id": "q2", "question": "7 * 8?", "answers": {"A": "54", "B": "56"}, "right": None, "gold": None, "who": "Ann"},
    {"id": "q3", "question": "Largest planet?", "answers": {"A": "Mars", "B": "Saturn"}, "right": None, "gold": None},
]
PAIRS = [
    {"id": "p1", "question": "Shorter, please.", "answers": {"A": "One.", "B": "Two."}, "better": None},
    {"id": "p1", "question": "Shorter, please.", "answers": {"A": "One.", "B": "Three."}, "better": None},
]


def sheet(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def inside(tmp_path):
    with opened_studio(tmp_path) as address, httpx.Client(base_url=address.partition("/open")[0]) as client:
        client.get(address)
        yield client


def address_of(inside, name):
    return (
        "/labels/" + inside.get("/").text.partition(f"<bdi>{name}</bdi>")[0].rpartition("/labels/")[2].partition('"')[0]
    )


def shown(page):
    """Return the hidden fields of a page's form."""
    return {name: page.text.partition(f'name="{name}" value="')[2].partition('"')[0] for name in ("row", "shown")}


def labelled(inside, address, **fields):
    """Send the form of the first open row."""
    return inside.post(address, data={**shown(inside.get(address)), **fields}, follow_redirects=True)


def test_a_sheet_is_labelled_row_by_row_and_decide_reads_it(inside, tmp_path):
    path = sheet(tmp_path / "golds.jsonl", ROWS)
    address = address_of(inside, "golds.jsonl")
    first = inside.get(address)
    assert "0 of 3 labelled" in first.text
    assert "Capital of Peru?" in first.text
    assert "&lt;b&gt;Quito&lt;/b&gt;" in first.text
    assert "7 * 8?" in labelled(inside, address, mark="", right="A").text
    assert "Largest planet?" in labelled(inside, address, mark="?").text
    done = labelled(inside, address, mark="none", gold="Jupiter")
    assert "Every row has a label" in done.text
    assert f"--ask {path}" in done.text
    labels = Labels.read(path)
    assert labels.right == {"q1": ("Lima",), "q2": None, "q3": ("Jupiter",)}
    assert labels.sheet[1]["who"] == "Ann"


def test_a_label_is_changed_and_taken_back(inside, tmp_path):
    path = sheet(tmp_path / "golds.jsonl", ROWS)
    address = address_of(inside, "golds.jsonl")
    labelled(inside, address, mark="", right=["A", "B"])
    assert Labels.read(path).right["q1"] == ("Lima", "<b>Quito</b>")
    page = inside.get(address, params={"row": 0})
    assert page.text.count(" checked") == 2
    inside.post(address, data={**shown(page), "mark": "", "gold": " "})
    assert Labels.read(path).right == {}


def test_pairs_of_one_question_are_labelled_apart(inside, tmp_path):
    path = sheet(tmp_path / "pairs.jsonl", PAIRS)
    address = address_of(inside, "pairs.jsonl")
    assert "Which answer is better?" in inside.get(address).text
    labelled(inside, address, mark="B")
    assert "--metric preference" in labelled(inside, address, mark="equal").text
    assert [row["better"] for row in Labels.read(path).sheet] == ["B", "equal"]
    assert [one.better for one in Labels.read(path).preferences["p1"]] == [-1, 0]


def test_a_spreadsheet_stays_one(inside, tmp_path):
    (tmp_path / "golds.csv").write_text("id,question,A,B,right,gold,who\nq1,Peru?,Lima,Quito,,,Ann\n", "utf-8")
    labelled(inside, address_of(inside, "golds.csv"), mark="", right="A")
    assert (tmp_path / "golds.csv").read_text("utf-8") == "id,question,A,B,right,gold,who\nq1,Peru?,Lima,Quito,A,,Ann\n"


@pytest.mark.parametrize("fields", [{"mark": "Z"}, {"mark": "", "right": "Z"}, {"mark": "equal"}])
def test_what_is_no_label_of_the_row_is_refused(inside, tmp_path, fields):
    path = sheet(tmp_path / "golds.jsonl", ROWS)
    before = path.read_bytes()
    response = labelled(inside, address_of(inside, "golds.jsonl"), **fields)
    assert response.status_code == 422
    assert "is not a label of this row" in response.text
    assert path.read_bytes() == before


def test_a_sheet_that_changed_meanwhile_keeps_what_it_has(inside, tmp_path):
    path = sheet(tmp_path / "golds.jsonl", ROWS)
    address = address_of(inside, "golds.jsonl")
    fields = shown(inside.get(address))
    sheet(path, ROWS[1:])
    before = path.read_bytes()
    response = inside.post(address, data={**fields, "mark": "none"})
    assert (response.status_code, "was written by something else" in response.text) == (422, True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"cookie": ""}])
def test_no_other_site_can_label(inside, tmp_path, headers):
    path = sheet(tmp_path / "golds.jsonl", ROWS)
    address = address_of(inside, "golds.jsonl")
    fields = shown(inside.get(address))
    before = path.read_bytes()
    inside.cookies.clear() if "cookie" in headers else None
    assert inside.post(address, data={**fields, "mark": "none"}, headers=headers).status_code == 403
    assert path.read_bytes() == before


def test_gold_answers_alone_are_no_labelling_sheet(tmp_path):
    sheet(tmp_path / "golds.jsonl", [{"id": "q1", "question": "Peru?", "gold": "Lima"}])
    assert [item.kind for item in Folder(tmp_path).scan()] != ["labels"]


def test_the_sheet_of_the_command_is_labelled_to_a_verdict(inside, tmp_path):
    rows = [
        {
            "question_id": f"q{q}",
            "question": f"is number {q} odd, and why?",
            "round": r,
            "answer": "no" if r == 1 and q % 40 == 0 else "yes",
            "end": "max_rounds",
            "cost.generator.calls": 1.0,
        }
        for q in range(400)
        for r in (1, 2)
    ]
    write_recording(tmp_path / "run.parquet", rows)
    command = (
        "decide",
        tmp_path / "run.parquet",
        "--ask",
        tmp_path / "golds.jsonl",
        "-o",
        tmp_path / "d.json",
        "--json",
    )
    first = cli(*command).json
    assert first["verdict"] == "not enough data"
    address = address_of(inside, "golds.jsonl")
    for _ in range(first["labels"]["to_label"]):
        page = inside.get(address)
        right = "A" if '<b>A</b> <span class="answer"><bdi>no' in page.text else "B"
        inside.post(address, data={**shown(page), "mark": "", "right": right})
    last = cli(*command).json
    assert last["labels"]["to_label"] == 0
    assert last["verdict"] == "do it"
