"""A benchmark of readings: logs in the shapes of public projects and of our own, each with the reading that is right."""
