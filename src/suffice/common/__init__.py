"""Helpers that every room may use: files, processes, tables, text, and registries of users' names.

Texts, paths, tables and callables enter and leave.  A module belongs here if three rooms need it and it knows nothing of questions,
rounds or recordings.
"""
