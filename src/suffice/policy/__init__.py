"""What decides one question: rounds, signals, rules, selectors, calibration and the live session; numpy alone."""
