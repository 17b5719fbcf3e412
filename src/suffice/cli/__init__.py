"""The command line: parse, call, print.

The words of a command line enter; a printed screen or JSON and an exit code leave.  Commands compute nothing themselves; each
calls a function of the other rooms that does the same in Python.
"""
