"""Statements about a loop or a policy: decide, certify, watch and diagnose.

A recording enters; one sentence leaves, with the risk that it is wrong and the figures behind it.
"""
