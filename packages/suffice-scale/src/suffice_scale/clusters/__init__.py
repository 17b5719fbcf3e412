"""Commands on a Ray cluster: workers run the same command, each on shards of the questions.

Only the command's arguments are sent.  Each worker builds the models and the `RecordingPlan` of its shard from them, so
keys stay on their nodes.  Ray itself is imported only when a command names a cluster.
"""
