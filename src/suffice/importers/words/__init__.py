"""Words and forms that logs use: usual names of columns, forms of numbers and ids, marks of an answer, scales of ratings.

Nothing here knows a log; `choices` holds the values of options that settle how one is read.
"""
