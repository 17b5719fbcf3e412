"""Certificates: the cheapest policy of a declared family whose loss is bounded with confidence."""
