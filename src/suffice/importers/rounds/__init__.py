"""Rounds of questions as importers return them, and the counts and preview that are shown before they are written."""
