"""Sdists and wheels: built twice, the second time from the sdist in another folder, they are the same bytes."""

import shutil
import tarfile
import zipfile

import pytest
from scripts.dist import build_twice, compared

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "tiny"
version = "1.0"
requires-python = ">=3.11"

[tool.hatch.build.targets.wheel]
packages = ["src/tiny"]

[tool.hatch.build.targets.sdist]
only-include = ["src"]
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "src" / "tiny").mkdir(parents=True)
    (folder / "src" / "tiny" / "__init__.py").write_text('"""Tiny."""\n')
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


@pytest.mark.whole
def test_a_project_built_twice_is_the_same_whatever_the_clock_says(project, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    built = list(build_twice(project, tmp_path))
    assert [path.name for path in built] == ["tiny-1.0-py3-none-any.whl", "tiny-1.0.tar.gz"]
    assert all(path.parent == tmp_path for path in built)
    with zipfile.ZipFile(built[0]) as wheel:
        assert {item.date_time[0] for item in wheel.infolist()} == {2020}


@pytest.mark.whole
def test_an_sdist_that_grows_when_it_is_built_again_is_refused(project, tmp_path):
    path = project / "pyproject.toml"
    path.write_text(path.read_text().replace('only-include = ["src"]', ""))
    with pytest.raises(SystemExit, match="differs when"):
        list(build_twice(project, tmp_path))


def test_members_that_differ_are_named(tmp_path):
    for number in (1, 2):
        with zipfile.ZipFile(tmp_path / f"{number}.whl", "w") as wheel:
            wheel.writestr("same", "text")
            wheel.writestr("date", str(number))
    assert compared(tmp_path / "1.whl", tmp_path / "2.whl") == "date"
    shutil.copy(tmp_path / "1.whl", tmp_path / "3.whl")
    assert "packed in another way" in compared(tmp_path / "1.whl", tmp_path / "3.whl")
    for number in (1, 2):
        with tarfile.open(tmp_path / f"{number}.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / f"{number}.whl", "wheel")
            archive.add(tmp_path, "folder", recursive=False)
    assert compared(tmp_path / "1.tar.gz", tmp_path / "2.tar.gz") == "wheel"
