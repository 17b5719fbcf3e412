"""Which rows are rounds, of which run and in which order, and what the others are: failed calls, scores, searches, events around a loop."""
