"""Evaluation of policies on recorded rounds: replay, costs, statistics and search.

From a recording and policies it computes figures with intervals, for the policies and for every baseline.  No model is
called, so it costs nothing.
"""
