"""Recording at scale: shards of questions, batches of providers, and workers of a Ray cluster."""
