"""Early stops of self-consistency: Adaptive-Consistency, ESC and votes with a lead, on samples and panels that others published."""
