"""What counts as equal."""

ROUNDING = 1e-12
"""How far apart figures of size 1 may be that differ by rounding alone, as sums in another order do."""
