"""Words and forms in logs: usual names of columns, forms of numbers and ids, marks of an answer, scales of ratings.

Nothing here depends on a particular log; `choices` has the values of options that determine how one is read.
"""
