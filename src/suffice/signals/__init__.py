"""Pure functions of the rounds: what each round tells before anyone knows the gold answer."""
