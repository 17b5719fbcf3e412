"""Training code of the embedded span reader; see README.md."""
