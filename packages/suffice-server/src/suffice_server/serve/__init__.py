"""The decision as a service: policies from a folder, decisions and sessions over HTTP, for loops that are not Python."""

from suffice_server.serve.extra import check_extra

__all__ = ["check_extra"]
