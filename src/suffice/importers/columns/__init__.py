"""The columns of a table: rules for their cells, and the meaning that each is given."""
