"""The API from Python: `mainspring.Client`."""

from mainspring.client.client import Client

__all__ = ["Client"]
