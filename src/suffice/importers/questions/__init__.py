"""Rows of one question: ids under names of their own, confirmed by counters of rounds or gold answers, or made of several columns."""
