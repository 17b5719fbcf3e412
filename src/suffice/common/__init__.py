"""Helpers for every other package of Suffice: files, processes, tables, text, and registries of users' names.

They take and return texts, paths, tables and callables.  A module belongs here if three packages need it and it has nothing to
do with questions, rounds or recordings.
"""
