"""What policies would have done on recorded rounds: replay, costs, statistics and search."""
