"""Machine-checked theory: what holds of every rule, session and score, and by which method that is known."""
