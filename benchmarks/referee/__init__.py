"""A hostile referee: attacks on what verdicts, certificates, alarms and intervals say, with the rate at which each succeeds."""
