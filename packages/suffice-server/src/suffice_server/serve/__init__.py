"""The decision as a service: policies from a folder, decisions and sessions over HTTP, for any language."""

from suffice_server.serve.extra import check_extra

__all__ = ["check_extra"]
