"""Checks of a reading, from which alarms follow: what is counted part by part, and the signs of a misreading in the counts."""
