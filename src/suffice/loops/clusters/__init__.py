"""Commands on a cluster: workers run the very same command, each for shards of the questions."""
