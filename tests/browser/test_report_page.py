"""The report in a real browser: the slider says what `replay --json` says, and nothing runs that should not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from suffice.evaluation.replay import policy_for
from suffice.policy.rules import thresholds
from suffice.policy.rules.algebra import with_threshold
from suffice.policy.session import Policy
from suffice.recordings import read_recording
from tests.browser.watching import Watched
from tests.support.cli_tools import cli
from tests.support.report_tools import HOSTILE, hostile, questions, recording

RULE = "((p_correct > 0.4) & (judge_entailment >= 4)) | (overlap < 0.1)"
PRICE = {"uncached": 0.5, "cached": 0.05, "output": 1.5}
PRICES = {"generator": PRICE, "judge:entailment": PRICE}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("browser")
    recording(path / "eval.parquet", n=150, seed=3)
    recording(path / "judged.parquet", n=70, seed=4, judged=True)
    hostile(path / "hostile.parquet")
    (path / "prices.json").write_text(json.dumps(PRICES))
    policy_for(read_recording(path / "eval.parquet"), "tasr", name="tasr").save(path / "tasr.json")
    policy_for(read_recording(path / "judged.parquet"), RULE, name="judged").save(path / "judged.json")
    for name, policy in (("eval", "tasr"), ("judged", "judged")):
        arguments = ["--policy", path / f"{policy}.json", "--prices", path / "prices.json"]
        done = cli("report", path / f"{name}.parquet", *arguments, "-o", path / f"{name}.html", "--json")
        assert done.code == 0, done
        (path / f"{name}.told.json").write_text(done.out)
    data = questions(path / "questions.jsonl", n=150)
    assert cli("report", path / "eval.parquet", "--questions", data, "-o", path / "evidence.html").code == 0
    names = [path / f"{name}.parquet" for name in ("eval", "judged")]
    assert cli("report", *names, "--rule", "answer_stable", "-o", path / "two.html").code == 0
    assert cli("report", path / "hostile.parquet", "--rule", "tasr", "-o", path / "hostile.html").code == 0
    return path


@pytest.fixture
def opened(browser, folder):
    pages = []

    def open_(name, **options):
        pages.append(Watched(browser, folder / f"{name}.html", **options))
        return pages[-1]

    yield open_
    for watched in pages:
        watched.context.close()


@pytest.fixture(scope="session")
def told(folder):
    """What `replay --json` says about a policy with another threshold."""

    def replayed(name, policy, literal, threshold):
        loaded = Policy.load(folder / f"{policy}.json")
        moved = replace(loaded, rule=with_threshold(loaded.rule, thresholds(loaded.rule)[literal], threshold))
        moved.save(folder / "moved.json")
        arguments = [
            "--policy",
            folder / "moved.json",
            "--prices",
            folder / "prices.json",
            "--set=resamples=2",
            "--json",
        ]
        done = cli("replay", folder / f"{name}.parquet", *arguments)
        assert done.code == 0, done
        return done.json["rows"][0]

    return replayed


def test_the_slider_says_what_replay_says(opened, told):
    page = opened("eval")
    for threshold in (-1.0, 0.0, 0.1, 0.2, 0.25, 0.3, 0.4137, 0.6, 0.75, 0.9, 1.5):
        page.move(threshold)
        row = told("eval", "tasr", 1, threshold)
        for name in ("f1", "em"):
            assert page.figure(name) == row["metrics"][name], (name, threshold)
        assert page.figure("calls") == row["calls"]["mean"], threshold
        for name in ("money", "seconds"):
            assert page.figure(name) == row["costs"][name], (name, threshold)
        assert page.figure("tokens") == pytest.approx(row["costs"]["tokens"], rel=1e-12)
        counts = {
            item.get_attribute("data-round"): int(item.get_attribute("data-count"))
            for item in page.page.locator(".shares [data-round]").all()
        }
        shares = {f"round {r}": round(share * row["n"]) for r, share in row["stop_rounds"].items()}
        assert {name: count for name, count in counts.items() if count} == shares
        assert page.page.locator(".rule .text").first.inner_text() == row["rule"]
        shown = page.page.locator("[data-outcome=f1]").first.inner_text()
        assert shown == f"{100 * row['metrics']['f1'] + 1e-9:.1f}"


def test_the_slider_pays_for_a_judge_where_its_signal_is_read(opened, told):
    page = opened("judged")
    options = page.page.locator(".literal option").all_inner_texts()
    names = ["p_correct", "judge_entailment", "overlap"]
    for literal, threshold in ((0, 0.2), (0, 0.55), (1, 2.0), (1, 4.5), (2, 0.05), (2, 0.6)):
        page.page.locator(".reset").first.click()
        place = next(i for i, text in enumerate(options) if f" {names[literal]} " in text)
        page.page.locator(".literal").first.select_option(str(place))
        expect(page.page.locator(".rule b").first).to_contain_text(names[literal])
        page.move(threshold)
        row = told("judged", "judged", literal, threshold)
        assert page.figure("f1") == row["metrics"]["f1"], (literal, threshold)
        assert page.figure("calls") == row["calls"]["mean"], (literal, threshold)
        assert page.figure("money") == row["costs"]["money"], (literal, threshold)


def test_figures_of_the_page_are_those_of_the_json(opened, folder):
    page = opened("eval")
    row = json.loads((folder / "eval.told.json").read_text())["cells"][0]["replay"]["rows"][0]
    wanted = {
        "f1": row["metrics"]["f1"],
        "calls": row["calls"]["mean"],
        "tokens": row["costs"]["tokens"],
        "seconds": row["costs"]["seconds"],
        "money": row["costs"]["money"],
    }
    for name, value in wanted.items():
        assert float(page.page.locator(f"[data-figure={name}]").get_attribute("data-value")) == value, name
    cells = page.page.locator("#c0-tradeoff table").first.locator("tbody tr").first.locator("td")
    assert float(cells.nth(1).get_attribute("data-value")) == row["metrics"]["em"]
    interval = [float(part) for part in cells.nth(2).get_attribute("data-value").split()]
    assert interval == [row["deltas"]["f1"][key] for key in ("delta", "low", "high")]
    sentence = json.loads((folder / "eval.told.json").read_text())["cells"][0]["headlines"][0]["sentence"]
    assert page.page.locator(".headline").inner_text() == sentence


@pytest.mark.parametrize("name", ["eval", "judged", "two", "hostile"])
def test_nothing_is_asked_of_a_network_and_nothing_goes_wrong(opened, name):
    page = opened(name)
    for cost in page.page.locator(".cell:not([hidden]) input[name$=cost]").all():
        page.page.locator(f"label[for={cost.get_attribute('id')}]").click()
    page.page.locator("summary").first.click()
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert len([url for url in page.requests if url.startswith("file:")]) == 1
    assert page.problems == []
    assert page.dialogs == []
    assert page.page.locator(".cell:not([hidden]) .chart svg").count() >= 3


def test_text_of_a_recording_stays_text(opened):
    page = opened("hostile")
    assert page.page.locator("script").count() == 5
    items = page.page.locator(".item")
    for place in range(len(HOSTILE)):
        items.nth(place).click()
        title = page.page.locator(".detail h3").text_content()
        assert title == HOSTILE[place]
        assert page.page.locator(".detail img, .detail script, .detail style").count() == 0
    page.page.locator("input[type=search]").fill("<script>")
    assert 0 < items.count() < 24
    assert page.dialogs == []
    assert page.problems == []


def test_evidence_shows_title_and_text_when_questions_are_given(opened):
    page = opened("evidence")
    page.page.locator(".item").first.click()
    number = page.page.locator(".detail .tag").first.text_content().removeprefix("q")
    first = page.page.locator(".detail li").first
    assert first.locator(".line b").first.text_content() == f"{HOSTILE[0]} {number}.0"
    assert first.locator(".evidence").text_content() == f"{HOSTILE[0]} {number}.0 Text 0. {HOSTILE[1]}"
    assert page.page.locator(".detail img, .detail script, .detail style").count() == 0
    page.page.locator("input[type=search]").fill(f" {number}.0")  # a title
    assert page.page.locator(".item").count() >= 1
    assert page.dialogs == []
    assert page.problems == []


def test_the_keyboard_moves_the_slider(opened):
    page = opened("eval")
    position = page.page.locator(".position").first
    position.focus()
    before, figure = position.input_value(), page.figure("calls")
    for _ in range(60):
        page.page.keyboard.press("ArrowRight")
    after = float(position.input_value())
    assert after > float(before)
    assert page.figure("calls") > figure
    assert float(page.page.locator(".slider").first.get_attribute("data-threshold")) == after
    assert f"Threshold {after:g}" in position.get_attribute("aria-valuetext")
    expect(page.page.locator(".slider [role=status]").first).to_contain_text(f"Threshold {after:g}")
    page.page.locator(".reset").first.click()
    assert page.figure("calls") == figure


def test_the_keyboard_walks_through_the_questions(opened):
    page = opened("eval")
    items = page.page.locator(".items")
    items.focus()
    first = page.page.locator(".detail h3").text_content()
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("j")
    assert page.page.locator(".item[aria-selected=true]").count() == 1
    third = page.page.locator(".item").nth(2)
    assert third.get_attribute("aria-selected") == "true"
    assert items.get_attribute("aria-activedescendant") == third.get_attribute("id")
    assert page.page.locator(".detail h3").text_content() == third.locator("p").text_content() != first
    page.page.keyboard.press("End")
    assert page.page.locator(".item").last.get_attribute("aria-selected") == "true"
    page.page.keyboard.press("/")
    page.page.keyboard.type("tower 17?")
    assert page.page.locator(".item").count() == 1
    page.page.keyboard.press("Enter")
    assert page.page.evaluate("document.activeElement.className") == "items"


def test_filters_count_what_they_show_and_later_rounds_are_marked(opened, folder):
    page = opened("eval")
    total = 0
    for name in ("all", "wrong", "saved", "differs"):
        label = page.page.locator(f"[data-filter={name}]").first
        label.click()
        count = int(label.inner_text().split()[-1])
        assert page.page.locator(".item").count() == count
        total += count if name in ("wrong", "saved") else 0
    page.page.locator("[data-filter=all]").first.click()
    row = json.loads((folder / "eval.told.json").read_text())["cells"][0]["replay"]["rows"][0]
    assert total <= row["n"]
    page.page.locator("[data-filter=saved]").first.click()
    assert page.page.locator(".rounds li.stop").count() == 1
    later = page.page.locator(".rounds li.later")
    assert later.count() >= 1
    assert "after the stop" in later.first.text_content()
    assert "the rule held: (answer_stable >= 1) & (p_correct > 0.25)" in page.page.locator(".why").text_content()


def test_dark_and_light_follow_the_system_and_the_button(opened):
    def ground(page):
        return page.page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = opened("eval", color_scheme="light"), opened("eval", color_scheme="dark")
    assert ground(light) != ground(dark)
    button = light.page.locator("#theme")
    button.click()
    assert "light" in button.get_attribute("aria-label")
    button.click()
    assert ground(light) == ground(dark)
    axis = "getComputedStyle(document.querySelector('.chart svg text')).fill"
    assert light.page.evaluate(axis) == dark.page.evaluate(axis)
    button.click()
    assert ground(light) != ground(dark)
    assert light.page.evaluate(axis) != dark.page.evaluate(axis)


@pytest.mark.parametrize("name", ["eval", "two", "hostile"])
def test_no_width_scrolls_sideways(opened, name):
    page = opened(name, viewport={"width": 320, "height": 800})
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 320
    for item in page.page.locator("summary").all():
        if item.is_visible():
            item.click()
    for width in (320, 390, 768):
        page.page.set_viewport_size({"width": width, "height": 800})
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.problems == []


def test_another_recording_is_chosen_at_the_top(opened):
    page = opened("two")
    page.page.locator("#cell").select_option("1")
    page.page.wait_for_selector(".cell[data-cell='1'][data-ready]")
    assert page.page.locator(".cell:not([hidden]) h1").inner_text() == "judged"
    assert page.page.locator(".cell:not([hidden]) .chart svg").count() >= 3
    assert page.problems == []


def test_every_control_has_a_name_and_every_part_a_heading(opened):
    page = opened("eval")
    unnamed = page.page.evaluate(
        "[...document.querySelectorAll('input, select, button')].filter(e => !(e.labels && e.labels.length) &&"
        " !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => e.outerHTML)"
    )
    assert unnamed == []
    assert page.page.locator("main").count() == page.page.locator("h1").count() == 1
    parts = page.page.locator("section[aria-labelledby]")
    for part in parts.all():
        assert page.page.locator(f"[id='{part.get_attribute('aria-labelledby')}']").inner_text().strip()
    page.page.keyboard.press("Tab")
    assert page.page.evaluate("document.activeElement.className") == "skip"
    page.page.keyboard.press("Tab")
    style = page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert style != "none"


def test_print_shows_tables_and_no_controls(opened):
    page = opened("eval", color_scheme="dark")
    page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.page.emulate_media(media="print")
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.page.locator("#theme").is_visible()
    assert not page.page.locator(".controls").first.is_visible()
    assert page.page.locator(".headline").is_visible()
    assert page.page.locator("#c0-stops table").first.is_visible()
    page.page.emulate_media(media="screen")
    page.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.page.locator("#c0-stops table").first.is_visible()


def test_a_page_without_scripts_still_has_its_tables(browser, folder):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "eval.html").as_uri())
    assert page.locator("#c0-tradeoff table").first.is_visible()
    assert page.locator(".headline").is_visible()
    context.close()
