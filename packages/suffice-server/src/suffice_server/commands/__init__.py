"""The commands of the service and the studio."""
