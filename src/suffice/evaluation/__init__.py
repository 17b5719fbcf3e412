"""Evaluation of policies on recorded rounds: replay, costs, statistics and search.

A recording and policies enter; figures with intervals leave, beside every baseline.  No model is called, so nothing is
paid.
"""
