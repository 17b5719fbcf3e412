"""Convert the rows of a table to rounds in columns, all at once or in parts, in memory or on disk."""
