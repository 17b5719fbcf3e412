"""The columns of a table: their meaning, and rules for their cells."""
