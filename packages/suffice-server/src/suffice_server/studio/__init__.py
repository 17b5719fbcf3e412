"""The studio: a local page over a folder of recordings, policies and logs."""

from suffice_server.studio.app import studio_app
from suffice_server.studio.folder import Folder, Item

__all__ = ["Folder", "Item", "studio_app"]
