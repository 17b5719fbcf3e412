"""The command line: parse, call, print.

No command computes anything; each has a function of the rooms below that does the same in Python.
"""
