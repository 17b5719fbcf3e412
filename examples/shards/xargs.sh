#!/bin/sh
# It needs the packages suffice and suffice-scale.
# Every shard on this machine, some at a time. What follows the two numbers goes to `suffice record`:
#     sh xargs.sh 8 4 questions.jsonl -o recording --base-url http://localhost:8000/v1 --model MODEL
# Run it again if a shard failed or was killed: it goes on from its journal, and shards that have ended ask nothing.
shards=$1 processes=$2
shift 2
seq "$shards" | xargs -P "$processes" -I{} suffice record "$@" --shard "{}/$shards"
