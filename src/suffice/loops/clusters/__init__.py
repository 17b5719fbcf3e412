"""Commands on a Ray cluster: workers run the very same command, each for shards of the questions.

The words of a command are all that is sent.  Each worker builds the models and the `RecordingPlan` of its shard from them, so
keys stay on their nodes, and nothing in this room repeats what a plan says.  Ray itself is imported when a command names a
cluster.
"""
