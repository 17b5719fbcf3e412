"""Find the rows of each question: unusual ids, confirmed by round numbers or gold answers, or made of several columns."""
