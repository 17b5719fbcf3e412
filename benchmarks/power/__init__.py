"""Power: the number of questions that each valid test of a mean loss needs for proof, on real and made losses."""
