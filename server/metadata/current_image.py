"""The metadata image that this node has now, for all who read it."""

from __future__ import annotations

from quorumlog.server.metadata.image import MetadataImage


class CurrentImage:
    """Holds the image. A snapshot replaces it by another one, so nobody keeps the image itself.

    Attributes:
        image: the newest one; only the metadata replica sets it.
    """

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image = MetadataImage()

    def get(self) -> MetadataImage:
        """The newest image."""
        return self.image
