"""Demonstrations on bundled questions, offline."""
