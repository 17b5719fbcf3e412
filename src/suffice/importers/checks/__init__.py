"""Checks of an import: counts over all parts, and alarms about signs of a misreading in these counts."""
