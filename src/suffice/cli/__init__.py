"""The command line: parse, call, print.

Commands compute nothing themselves; each calls a function of the other rooms that does the same in Python.
"""
