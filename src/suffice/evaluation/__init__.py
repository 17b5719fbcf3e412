"""Evaluation of policies on recorded rounds: replay, costs, statistics and search.

Figures with intervals are computed from a recording, for the given policies and for every baseline.  No model is
called, so this costs nothing.
"""
