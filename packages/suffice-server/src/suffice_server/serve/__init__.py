"""A service that decides over HTTP when loops in any language stop: policies from a folder, decisions and sessions."""

from suffice_server.serve.extra import check_extra

__all__ = ["check_extra"]
