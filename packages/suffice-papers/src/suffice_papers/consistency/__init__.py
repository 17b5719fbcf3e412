"""Early stopping of self-consistency: Adaptive-Consistency, ESC and votes with a lead, on published samples and panels."""
