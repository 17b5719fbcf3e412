"""Answers and gold answers: which column has them, where they are in a reply, and how they are joined to rounds."""
