"""Files that ship with the package; `DATA.md` names the source and the licence of each."""
