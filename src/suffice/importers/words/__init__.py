"""Usual names of columns, and usual forms of numbers, ids, marked answers and ratings in logs.

Nothing here depends on a particular log.  The module `choices` has the options that determine how a log is read.
"""
