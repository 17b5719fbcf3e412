"""Decide which rows are rounds, to which run they belong, and in which order they come.

Other rows, such as failed calls, scores, searches and events, are handled here, too.
"""
