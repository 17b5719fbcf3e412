"""Methods that ask for their own evidence, and gates, side by side on a small world whose facts a tiny model was taught or not."""
