"""Methods that decide themselves when to retrieve, and gates, on a small world that a tiny model partly knows."""
