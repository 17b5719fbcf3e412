"""The documentation on paper: the theme lets a wide table scroll, and paper does not."""

from importlib.resources import files
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
WIDE = "".join(f"<th>{'fixed_k(2): saves, changes ' * 3}</th>" for _ in range(9))
PAGE = f"""<div class="md-typeset" style="width: 500px"><div class="md-typeset__scrollwrap"><div class="md-typeset__table">
<table><thead><tr>{WIDE}</tr></thead></table></div></div></div>"""


def width_on_paper(browser, *styles):
    page = browser.new_page()
    page.emulate_media(media="print")
    page.set_content("".join(f"<style>{style}</style>" for style in styles) + PAGE)
    width = page.evaluate("document.querySelector('table').scrollWidth")
    page.close()
    return width


def test_a_wide_table_of_the_site_fits_the_paper(browser):
    sheets = Path(str(files("material"))).glob("templates/assets/stylesheets/main.*.css")
    (theme,) = (path.read_text("utf-8") for path in sheets)
    (ours,) = yaml.safe_load((ROOT / "mkdocs.yml").read_text().partition("\nplugins:")[0])["extra_css"]
    assert width_on_paper(browser, theme) > 500
    assert width_on_paper(browser, theme, (ROOT / "docs" / ours).read_text("utf-8")) <= 500
