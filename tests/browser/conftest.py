"""One browser for every page that is tested."""

import os
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

CHROMIUM = os.environ.get("SUFFICE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser():
    assert CHROMIUM, "no chromium: run  apt-get install chromium  or name one in SUFFICE_CHROMIUM"
    expect.set_options(timeout=120_000)  # a limit for what never comes: machines are slow
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()
