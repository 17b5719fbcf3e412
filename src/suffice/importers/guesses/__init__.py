"""Guesses of what columns mean from their names and values, with the notes and questions that follow from them."""
