"""Trying a rule in a real browser: with keys alone, with mistakes, with a hundred thousand rounds, with hostile names."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from suffice.recordings import write_recording
from tests.browser.test_studio import Visit
from tests.support.report_tools import HOSTILE, hostile, rows
from tests.support.studio import filled, opened_studio


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = filled(tmp_path_factory.mktemp("trying"))
    hostile(path / "hostile.parquet")
    names = {f"signal {bad}": 0.5 for bad in HOSTILE} | {"vertrauen": 0.7, "уверенность": 0.2}
    listed = [{**row, **names} for row in rows(30)]
    write_recording(path / "names.parquet", listed, {}, dict.fromkeys(names, "signal"))
    return path


@pytest.fixture(scope="module")
def address(folder):
    with opened_studio(folder) as address:
        yield address


@pytest.fixture
def trying(browser, address):
    visits = []

    def start(name="eval.parquet", **options):
        visit = Visit(browser, address, **options)
        visits.append(visit)
        visit.page.get_by_role("link", name=name).click()
        visit.page.get_by_role("link", name="Try a rule").click()
        done(visit.page)
        return visit.page

    yield start
    for visit in visits:
        assert visit.problems == []
        visit.context.close()


def done(page):
    expect(page.locator("#results")).not_to_have_attribute("aria-busy", "true")


def write(page, text):
    page.locator("#rule").fill(text)


def test_a_rule_is_written_with_keys_alone_and_its_figures_appear(trying):
    page = trying()
    page.keyboard.press("r")
    page.keyboard.type("answ")
    expect(page.locator("#rule-list [role=option]").first).to_contain_text("answer_stable")
    page.keyboard.press("Control+a")
    page.keyboard.type("(p_c")
    for keys in ("ArrowDown", "Enter", ">", " ", "ArrowDown", "ArrowDown", "Enter", ")", " "):
        page.keyboard.press(keys) if len(keys) > 1 else page.keyboard.type(keys)
    box = page.locator("#rule")
    expect(box).to_have_value(re.compile(r"^\(p_correct > 0\.\d+\) $"))
    page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-activedescendant", "rule-list-0")
    expect(page.locator("#rule-list-0")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(box).to_have_attribute("aria-expanded", "false")
    expect(box).to_be_focused()
    page.keyboard.press("Enter")
    done(page)
    expect(page.locator("#results .headline")).to_contain_text(box.input_value().strip())
    expect(page.locator("#results [data-figure=f1]")).to_be_visible()
    expect(page.locator("#results .chart svg").first).to_be_visible()
    expect(page.locator("#announcer")).to_contain_text("reaches F1")
    assert "rule=%28p_correct" in page.url


def test_a_wrong_rule_marks_its_error_and_keeps_the_last_figures(trying):
    page = trying()
    write(page, "round >= 2")
    expect(page.locator("#results")).to_have_attribute("data-label", "round >= 2")
    done(page)
    before = page.locator("#results .tiles").inner_text()
    write(page, "(answer_stabel >= 1) & (p_correct > 0.5)")
    expect(page.locator("#rule-problem mark")).to_have_text("answer_stabel")
    expect(page.locator("#rule-problem")).to_contain_text("Did you mean")
    expect(page.locator("#stale")).to_have_text(
        "Below are still the figures of round >= 2, the last rule that could be tried."
    )
    expect(page.locator("#rule")).to_have_attribute("aria-invalid", "true")
    assert page.locator("#results .tiles").inner_text() == before
    page.locator("#rule-problem button", has_text="answer_stable").click()
    expect(page.locator("#results")).to_have_attribute("data-label", "(answer_stable >= 1) & (p_correct > 0.5)")
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#rule-problem")).to_be_hidden()


def test_an_edit_ends_the_one_before_and_only_the_last_is_shown(trying):
    page = trying()
    ended, shown = [], []
    page.on("requestfailed", lambda request: ended.append(request.url))

    def note(label):
        shown.append(label)

    page.expose_function("shown", note)
    page.evaluate(
        "new MutationObserver(() => shown(document.getElementById('results').dataset.label))"
        ".observe(document.getElementById('results'), { attributes: true, attributeFilter: ['data-label'] })"
    )
    page.route("**/figures?*", lambda route: None if "round+%3E%3D+2" in route.request.url else route.continue_())
    with page.expect_request("**/figures?*round+%3E%3D+2*"):
        write(page, "round >= 2")  # is never answered
    write(page, "round >= 3")
    expect(page.locator("#results")).to_have_attribute("data-label", "round >= 3")
    done(page)
    assert [url for url in ended if "round+%3E%3D+2" in url]
    assert set(shown) == {"round >= 3"}


def test_settings_change_the_figures_and_the_address_opens_them_again(trying, folder):
    page = trying()
    write(page, "answer_stable")
    page.keyboard.press("Escape")
    page.locator(".settings summary").click()
    page.locator("[name=model]").select_option("gpt-4o-mini")
    page.locator("[name=max_rounds]").fill("4")
    page.locator("[name=baseline]").select_option(label="tasr.json")
    expect(page.locator("#results .headline")).to_contain_text("tasr reaches")
    expect(page.locator("#results [data-figure=money]")).to_be_visible()
    done(page)
    page.locator("label[for=shown-money]").click()
    expect(page.locator("#results [data-role=tradeoff] svg")).to_contain_text("US dollars")
    figures = page.locator("#results .tiles").inner_text()
    page.reload()
    done(page)
    assert page.locator("#results .tiles").inner_text() == figures
    assert page.locator("[name=max_rounds]").input_value() == "4"


def test_the_policy_is_saved_only_where_nothing_must_be_fitted_first(trying, tmp_path):
    page = trying()
    write(page, "answer_stable")
    expect(page.locator("#results")).to_have_attribute("data-label", "answer_stable")
    done(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as policy.json").click()
    download.value.save_as(tmp_path / "policy.json")
    assert json.loads((tmp_path / "policy.json").read_text())["rule"] == "answer_stable >= 1"
    write(page, "tasr")
    expect(page.locator("#results")).to_have_attribute("data-label", "tasr")
    done(page)
    expect(page.get_by_role("link", name="Save as policy.json")).to_have_count(0)
    expect(page.locator("#results .command code", has_text="suffice calibrate")).to_be_visible()
    page.get_by_role("link", name="Lost by stopping").click()
    expect(page.locator("h2").first).to_have_text("Question by question")


def test_hostile_names_and_answers_stay_text(trying):
    page = trying("hostile.parquet")
    write(page, HOSTILE[0])
    expect(page.locator("#rule-problem")).to_be_visible()
    assert page.locator("script").evaluate_all("all => all.filter((one) => !one.src).length") == 0
    page = trying("names.parquet")
    write(page, "")
    page.keyboard.type("v")
    expect(page.locator("#rule-list")).to_contain_text("vertrauen")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("> 0.5")
    expect(page.locator("#results")).to_have_attribute("data-label", "vertrauen > 0.5")
    offers = [{"first": 0, "last": 1, "insert": "x ", "kind": "signal", "label": bad, "about": bad} for bad in HOSTILE]
    page.route("**/completion?*", lambda route: route.fulfill(json={"candidates": offers}))
    write(page, "s")
    expect(page.locator("#rule-list [role=option]")).to_have_count(len(HOSTILE))
    assert page.locator("#rule-list :not(li, code, span)").count() == 0


def test_the_page_fits_a_phone_in_the_dark(trying):
    page = trying(viewport={"width": 390, "height": 844}, color_scheme="dark")
    write(page, "answer_stable")
    expect(page.locator("#results")).to_have_attribute("data-label", "answer_stable")
    done(page)
    page.keyboard.press("Escape")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_deciding_says_what_to_do_and_can_be_cancelled(trying):
    page = trying()
    page.route("**/advice?*", lambda route: None, times=1)  # the first is never answered, so it can be cancelled
    page.get_by_role("link", name="Decide").click()
    expect(page.locator("#progress")).to_have_text(re.compile("Comparing"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#progress")).to_have_text("Cancelled")
    page.locator("[name=max_loss]").fill("40")
    page.keyboard.press("Enter")
    expect(page.locator("#advice .headline")).to_contain_text("points")
    expect(page.locator("#advice .chart svg")).to_be_visible()
    expect(page.locator("#advice .command code").first).to_contain_text("--max-loss=0.4")
    expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
