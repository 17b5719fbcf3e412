"""Decide which rows are rounds, of which run and in which order, and handle other rows: failed calls, scores, searches, events."""
