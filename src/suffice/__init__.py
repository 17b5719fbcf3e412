"""Suffice."""
