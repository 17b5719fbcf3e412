"""Files that ship with the package; `DATA.md` names the source and the licence of each."""

BUNDLED_QUESTIONS = ("hotpotqa_tune", "hotpotqa_eval", "2wiki_tune", "2wiki_eval")
"""Names of the question sets in the package; DATA.md contains their sources and licences."""
