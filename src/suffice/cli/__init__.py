"""The command line: parse, call, print.

The input is the words of a command line; the output is a printed screen or JSON, and an exit code.  Commands compute
nothing themselves: each calls a function of another package of suffice, which does the same in Python.
"""
