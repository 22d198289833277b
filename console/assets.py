"""The files of the page: read once, with their hashes as entity tags, compressed for clients that accept it."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(slots=True, frozen=True)
class Asset:
    """One file of the page."""

    media_type: str
    content: bytes
    compressed: bytes
    tag: str


class Assets:
    """All files below a folder that a page may request; files added after the start are not served."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.suffix in MEDIA_TYPES
        }

    def answer(self, name: str, headers: Headers) -> Response:
        """Returns the file of a name, a 304 if the client has it already, or a 404."""
        asset = self._files.get(name)
        if asset is None:
            return PlainTextResponse("file not found\n", 404)
        said = {"ETag": asset.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if headers.get("if-none-match") == asset.tag:
            return Response(status_code=304, headers=said)
        if "gzip" in headers.get("accept-encoding", ""):
            return Response(asset.compressed, headers=said | {"Content-Encoding": "gzip"}, media_type=asset.media_type)
        return Response(asset.content, headers=said, media_type=asset.media_type)

    @property
    def compressed_bytes(self) -> int:
        """Total compressed size of all files."""
        return sum(len(asset.compressed) for asset in self._files.values())


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return Asset(MEDIA_TYPES[path.suffix], content, gzip.compress(content, mtime=0), tag)
