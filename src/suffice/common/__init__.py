"""Helpers that every room may use: files, processes, tables, text, and registries of users' names.

A module belongs here if three rooms need it and it knows nothing of questions, rounds or recordings.
"""
