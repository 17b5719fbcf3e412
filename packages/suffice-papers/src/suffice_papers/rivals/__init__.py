"""Methods that ask for their own evidence, beside gates, on a small world of which a tiny model was taught a third."""
