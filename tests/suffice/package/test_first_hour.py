"""The first rule of a contributor, as CONTRIBUTING.md shows it."""

from scripts.version import ROOT


def test_the_first_rule_of_a_contributor_passes():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    namespace = {"__name__": "first"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), namespace)
    tests = [value for name, value in namespace.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
