"""Answers and gold answers: find their columns, read answers inside replies, and join gold answers to rounds."""
