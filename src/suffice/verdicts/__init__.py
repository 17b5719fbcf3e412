"""Statements about a loop or a policy: decide, certify, watch and diagnose.

Each of these four computes one sentence from a recording, with the risk that the sentence is wrong and the figures
behind it.
"""
