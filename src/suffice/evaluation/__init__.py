"""What policies would have done on recorded rounds: replay, costs, statistics and search.

A recording and policies enter; figures with intervals leave, beside every baseline.  Nothing is called and nothing is paid.
"""
