"""Run commands on a Ray cluster, where each worker runs the same command on shards of the questions.

Only the command's arguments are sent.  Each worker builds the models and the `RecordingPlan` of its shard from the
arguments, so API keys stay on their nodes.  Ray itself is imported only when a command names a cluster.
"""
