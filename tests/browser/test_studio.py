"""The studio in a real browser: a newcomer's folder, a recording, a walk, a policy, a log."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from suffice.evaluation.replay import replay
from suffice.policy.session import Policy
from suffice.recordings import read_recording
from suffice.verdicts.watches import watch
from tests.support.cli_tools import cli
from tests.support.studio import LONG, filled, log, opened_studio, strange


class Visit:
    """A browser in a studio, with everything that it complained about."""

    def __init__(self, browser, address, **options):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.context.set_default_timeout(120_000)
        self.problems, self.requests = [], []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.context.on("weberror", lambda error: self.problems.append(str(error.error)))
        self.context.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.address = address
        self.page = self.tab()

    def tab(self):
        page = self.context.new_page()
        page.on("dialog", self._dialog)
        page.goto(self.address)
        return page

    def _dialog(self, dialog):
        self.problems.append(dialog.message)
        dialog.dismiss()

    def open(self, name, tab=""):
        """Open a thing of the folder by its name, and one of its tabs."""
        self.page.goto(f"http://{where_from(self.address)}/")
        return opened(self.page, name, tab)


def opened(page, name, tab=""):
    """Open a thing from the page of the folder."""
    follow(page, page.get_by_role("link", name=name, exact=True).click)
    if tab:
        follow(page, page.locator("nav.jump").get_by_role("link", name=tab, exact=True).click)
    return page


def follow(page, act, *arguments, **options):
    """Do what leads to another page, and wait until that listens."""
    with page.expect_navigation():
        act(*arguments, **options)
    page.wait_for_selector("html[data-ready]", state="attached")


def press(page, *keys):
    """Press keys of which the last leads to another page."""
    for key in keys[:-1]:
        page.keyboard.press(key)
    follow(page, page.keyboard.press, keys[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = filled(tmp_path_factory.mktemp("studio"))
    strange(path / "strange.parquet")
    return path


@pytest.fixture(scope="module")
def address(folder):
    with opened_studio(folder) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    visits = []

    def start(where=address, **options):
        visits.append(Visit(browser, where, **options))
        return visits[-1]

    yield start
    for one in visits:
        assert one.problems == []
        own = where_from(one.address)
        assert all(where_from(url) == own for url in one.requests if not url.startswith("data:"))
        one.context.close()


def where_from(url):
    return url.split("/")[2]


def test_a_new_folder_shows_what_to_do_and_hides_the_key(visit, tmp_path):
    with opened_studio(tmp_path) as address:
        page = visit(address).page
        assert page.url == f"{address.partition('/open')[0]}/"
        expect(page.locator(".headline")).to_contain_text("Nothing to look at yet")
        commands = page.locator(".command code").all_inner_texts()
        assert [command.split()[1] for command in commands] == ["demo", "import", "record"]
        (tmp_path / "run.csv").write_text("question,round,answer\nWhere?,1,Oslo\n")
        page.reload()
        expect(page.locator(".thing .name")).to_have_text("run.csv")
        assert "suffice import" in page.locator(".command code").inner_text()


def test_the_folder_names_everything_and_damaged_files_with_their_error(visit):
    page = visit().page
    expect(page.locator(".thing").filter(has_text="cut.parquet")).to_contain_text("cannot be read as parquet")
    expect(page.locator(".thing").filter(has_text="certified.json").locator(".tag")).to_have_text("certificate valid")
    expect(page.locator(".thing").filter(has_text="changed.json").locator(".tag")).to_have_text("certificate void")
    copied = page.locator(".thing").filter(has_text="rounds.csv")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copied.get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == copied.locator("code").inner_text()


def test_a_recording_shows_what_fixed_budgets_reach_as_replay_does(visit, folder):
    page = visit().open("eval.parquet")
    rows = {row.label: row for row in replay(read_recording(folder / "eval.parquet"), "tasr", metrics="f1").rows}
    for k in range(1, 6):
        cells = page.locator("tbody tr").filter(has_text=f"fixed_k({k})").first.locator("td")
        values = [float(cell) for cell in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")[:2]]
        assert values == pytest.approx([rows[f"fixed_k({k})"].metrics["f1"], rows[f"fixed_k({k})"].calls.mean])
    page.locator("summary").first.click()
    expect(page.get_by_role("row").filter(has_text="overlap").first).to_be_visible()


def test_a_lost_question_shows_its_rounds_and_why_it_stopped(visit):
    page = visit().open("eval.parquet", "Questions")
    follow(page, page.get_by_label("Policy").select_option, label="tasr.json")
    follow(page, page.locator("[data-filter=lost]").click)
    n = int(page.locator("[data-filter=lost] .dim").inner_text())
    assert page.locator(".item").count() == n > 1
    press(page, "j", "Enter")
    expect(page.locator(".walk")).to_contain_text(f"1 of {n}")
    stop = page.locator(".rounds .stop")
    expect(stop.locator(".stopline")).to_contain_text(
        "Stops here: the rule held: (answer_stable >= 1) & (p_correct > 0.25)"
    )
    expect(stop.locator(".tag")).to_have_class("tag bad")
    expect(page.locator(".why")).to_contain_text("The full budget would have returned")
    first = page.url
    press(page, "j")
    expect(page.locator(".walk")).to_contain_text(f"2 of {n}")
    press(page, "k")
    assert page.url == first
    press(page, "w")
    assert page.url != first
    expect(page.locator(".rounds .stop .tag")).not_to_have_class("tag good")
    press(page, "l")
    expect(page.locator("[data-filter=lost]")).to_have_attribute("aria-current", "true")
    page.get_by_label("Search").fill("TOWER 7?")
    press(page, "Enter")
    expect(page.locator(".item")).to_have_count(1)


def test_a_policy_shows_its_certificate_and_is_saved_as_it_is(visit, folder):
    page = visit().open("certified.json")
    expect(page.locator(".certificate")).to_contain_text("With 95 % confidence the expected net loss of f1 against")
    expect(page.locator(".paste pre").first).to_contain_text(f'Session("{folder / "certified.json"}")')
    with page.expect_download() as saving:
        page.keyboard.press("d")
    assert saving.value.suggested_filename == "certified.json"
    assert Policy.load(saving.value.path()) == Policy.load(folder / "certified.json")
    page = visit().open("changed.json")
    expect(page.locator(".caveats").last).to_contain_text("VOID: the policy was changed after it was certified")


def test_a_saved_report_is_what_the_command_writes(visit, folder):
    page = visit().open("judged/june.parquet", "Questions")
    with page.expect_download() as saving:
        page.get_by_role("link", name="Save the report").click()
    done = cli(
        "report",
        folder / "judged" / "june.parquet",
        "--questions",
        folder / "questions.jsonl",
        "-o",
        folder / "june.html",
    )
    assert done.code == 0, done
    assert saving.value.path().read_text() == (folder / "june.html").read_text()
    (folder / "june.html").unlink()


def test_a_log_is_followed_while_it_grows(visit, tmp_path):
    policy = Policy(rule="answer_stable")
    policy.save(tmp_path / "stable.json")
    log(tmp_path / "log.parquet", policy, n=40)
    with opened_studio(tmp_path) as address:
        one = visit(address)
        page = one.open("log.parquet")
        expect(page.locator(".headline")).to_contain_text("on 7 audited requests (of 1 more it is unknown")
        expect(page.get_by_role("row").filter(has_text="open or lost").locator("td")).to_have_text("1")
        expect(page.locator(".command code")).to_contain_text(f"--policy {tmp_path / 'stable.json'}")
        log(tmp_path / "log.parquet", policy, n=60)
        expect(page.locator(".headline")).to_contain_text("on 11 audited requests (of 1 more it is unknown")
        expect(page.locator("#lost")).to_be_hidden()
        expect(page.locator("[data-status]")).to_have_text("re-certify")


def test_a_log_is_watched_by_the_policy_that_decided_it(visit, folder):
    page = visit().open("log.parquet")
    result = watch(read_recording(folder / "log.parquet"), Policy.load(folder / "certified.json"))
    expect(page.locator(".headline")).to_have_text(result.sentence)
    expect(page.locator("[data-status]")).to_have_text(result.status)
    expect(page.locator(".chart svg.marks")).to_have_count(2)
    follow(page, page.get_by_label("Compared with tune questions").select_option, label="eval.parquet")
    expect(page.locator(".command code")).to_contain_text(f"--tune {folder / 'eval.parquet'}")
    follow(page, page.locator("select[name=policy]").select_option, label="tasr.json")
    expect(page.locator(".caveats").last).to_contain_text("no request of this log was decided by the policy 'tasr'")


def test_hostile_text_is_escaped_and_long_text_can_be_expanded(visit):
    page = visit().open("strange.parquet", "Questions")
    for place in range(4):
        page.goto(f"{page.url.split('/questions')[0]}/questions/{place}")
        expect(page.locator(".rounds .answer").first).to_be_visible()
        assert page.locator("main img, main script, main iframe").count() == 0
    page.goto(f"{page.url.split('/questions')[0]}/questions/0")
    answers = page.locator(".rounds .answer")
    expect(answers.nth(0)).to_contain_text(f"({len(LONG):,} characters)")
    expect(answers.nth(1)).to_contain_text("safe⟨U+202E⟩txt.exe⟨U+2066⟩ ⟨U+200F⟩done")
    expect(answers.nth(2)).to_contain_text("before␀after␛[2J")
    assert page.evaluate("document.body.innerText.length") < 60_000
    with page.expect_navigation():
        page.get_by_role("link", name="the whole answer").click()
    assert page.locator("body").inner_text().strip() == LONG.strip()


def test_tabs_keep_their_own_policy_and_report_a_missing_file(visit, folder):
    one = visit()
    page = one.open("eval.parquet", "Questions")
    follow(page, page.get_by_label("Policy").select_option, label="tasr.json")
    expect(page.locator("[data-filter=early] .dim")).not_to_have_text("0")
    other = opened(one.tab(), "eval.parquet", "Questions")
    expect(other.locator("[data-filter=early] .dim")).to_have_text("0")
    page.reload()
    expect(page.get_by_label("Policy").locator("option:checked")).to_have_text("tasr.json")
    (folder / "later.json").write_bytes((folder / "tasr.json").read_bytes())
    third = opened(one.tab(), "later.json")
    (folder / "later.json").unlink()
    third.reload()
    expect(third.locator(".headline")).to_contain_text("not in the folder any more")
    assert "404" in one.problems.pop()


def test_a_phone_in_the_dark_needs_no_sideways_scrolling(visit):
    one = visit(viewport={"width": 390, "height": 800}, color_scheme="dark")
    dark = one.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(20, 22, 26)"
    for name, tab in (("eval.parquet", ""), ("strange.parquet", "Questions"), ("tasr.json", ""), ("log.parquet", "")):
        page = one.open(name, tab)
        if tab:
            follow(page, page.locator(".item a").first.click)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, name
    one.page.emulate_media(media="print")
    expect(one.page.locator("#theme")).to_be_hidden()
    assert one.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_everything_is_reached_by_keys_alone_and_the_focus_is_seen(visit):
    page = visit().page
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("down and up in the list")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    names = []
    while len(names) < 40 and "eval.parquet" not in names:
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.innerText.trim()"))
    assert names[0] == "Skip to the page"
    assert names[-1] == "eval.parquet"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(page, "Enter")
    press(page, "2")
    press(page, "ArrowRight")
    expect(page.locator(".count")).to_contain_text("page 2 of 3")
    page.keyboard.press("/")
    page.keyboard.type("tower 1?")
    press(page, "Enter")
    expect(page.locator(".count")).to_have_text("1 question")
    press(page, "j", "Enter")
    expect(page.locator("h1.question")).to_have_text("Where is tower 1?")
    press(page, "f")
    expect(page.locator(".thing").first).to_be_visible()


def test_a_sheet_is_labelled_by_keys_alone(browser, tmp_path):
    rows = [
        {"id": f"q{n}", "question": f"{n} + {n}?", "answers": {"A": "3", "B": str(2 * n)}, "right": None, "gold": None}
        for n in (4, 5, 6)
    ]
    sheet = tmp_path / "golds.jsonl"
    sheet.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with opened_studio(tmp_path) as address:
        one = Visit(browser, address)
        page = one.open("golds.jsonl")
        press(page, "a", "b", "a", "Enter")  # the first mark is taken back
        press(page, "0")
        expect(page.locator("h1")).to_have_text("2 of 3 labelled")
        press(page, "-")
        expect(page.locator(".headline")).to_contain_text("Every row has a label")
        press(page, "ArrowLeft")
        assert one.problems == []
    assert [row["right"] for row in map(json.loads, sheet.read_text("utf-8").splitlines())] == ["B", "none", "?"]
