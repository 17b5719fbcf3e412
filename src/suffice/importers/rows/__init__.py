"""Rows that are rounds, of which run and in which order, and the others: failed calls, scores, searches, events around a loop."""
