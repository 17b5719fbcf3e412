"""A tiny model that thinks about puzzles: its lessons, its training, and the recording of its chains."""
