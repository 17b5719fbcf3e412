"""Statements about a loop or a policy: decide, certify, watch and diagnose.

From a recording each computes one sentence, with the risk that it is wrong and the figures that support it.
"""
