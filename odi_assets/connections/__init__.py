"""Connections: from names in the project file to URIs and options."""

from odi_assets.connections.location import Location, resolve

__all__ = ["Location", "resolve"]
