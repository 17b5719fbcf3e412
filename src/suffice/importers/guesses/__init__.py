"""Guess the meaning of columns from their names and values, and give notes and questions about doubtful guesses."""
