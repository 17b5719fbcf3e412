#!/bin/sh
# The released reader, from prepared data to model folder: sh training/recipe.sh PREPARED MINILM WORK
# About 20 minutes on two quiet CPU cores with bf16 instructions; README.md names the settings of malloc to export first.
set -eu
prepared=$1 minilm=$2 work=$3

# Stage 1: two epochs at a high learning rate, stopped half way of its schedule, before it learns questions by heart.
python -m training.train_reader --data "$prepared" --minilm "$minilm" --output "$work/stage1.pt" --set seed=0 epochs=4 \
    stop_after=525 unanswerable=0.1 'passages_multi=[2, 2, 3, 3, 4, 5, 6, 8, 10]' 'single_share=[1, 1, 0.5, 0.3]'

# Stage 2: one more epoch with new cloze questions mixed in, the learning rate falling to zero.
python -m training.train_reader --data "$prepared" --minilm "$minilm" --init "$work/stage1.pt" --output "$work/stage2.pt" \
    --set seed=2 epochs=1 lr=1e-4 head_lr=4e-4 cloze_per_question=1 'single_share=[0.4]'

python -m training.export_reader --checkpoint "$work/stage2.pt" --minilm "$minilm" \
    --output packages/suffice-reader/src/suffice_reader/models/span_reader --golden tests/golden/span_reader.json
