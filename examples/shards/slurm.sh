#!/bin/bash
# sbatch slurm.sh questions.jsonl -o /shared/recording --base-url http://node1:8000/v1 --model MODEL
# It needs the packages suffice and suffice-scale.
#SBATCH --job-name=record
#SBATCH --array=1-64%16   # 64 shards, 16 at a time; only the failed ones again: sbatch --array=2,5 slurm.sh ...
#SBATCH --requeue         # after a node failure the same shard goes on from its journal
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
suffice record "$@" --shard "$SLURM_ARRAY_TASK_ID/64"
