"""Calls of models as tools log them: objects of a log, what a call was sent and said, and the spans that they make."""
