"""Convert a source to records: archives, databases, text files and their formats."""
