"""The version of every distribution is set at once, also that of a release candidate."""

import json
import shutil
from pathlib import Path

from scripts import version
from scripts.version import ROOT, files, set_version, spelled, versions

import suffice


def test_a_release_candidate_is_spelled_as_each_index_wants_it(tmp_path, monkeypatch):
    for path in files():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    before = {path: (tmp_path / path.relative_to(ROOT)).read_text() for path in files()}
    monkeypatch.setattr(version, "ROOT", tmp_path)
    today = (suffice.__version__, spelled(suffice.__version__, Path("package.json")))
    for wanted, of_npm in (("2.0.0rc3", "2.0.0-rc.3"), ("2.0.0", "2.0.0"), today):
        set_version(wanted)
        assert {found for named in versions().values() for found in named} == {wanted}
        assert json.loads((tmp_path / "packages" / "suffice-js" / "package.json").read_text())["version"] == of_npm
    assert {path: (tmp_path / path.relative_to(ROOT)).read_text() for path in before} == before
