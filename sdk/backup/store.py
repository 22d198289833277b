"""Storage of a backup: a directory, or object storage through fsspec. Files appear complete or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from quorumlog.sdk.errors import IllegalArgumentError, QuorumlogError

#: Suffix of a file that is being written.
_UNFINISHED = ".unfinished"
#: A backup contains the records: only its owner may access it, as for a node's data directory.
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


class BackupStoreError(QuorumlogError):
    """The storage of a backup cannot be read or written. The message names the file and the reason."""


class BackupStore(Protocol):
    """Files by their names, which have ``/`` between their parts.

    Each call raises BackupStoreError if it fails.
    """

    def read(self, name: str) -> bytes | None:
        """Returns a file's content; None if it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Writes or replaces a file. It is durable when this returns."""

    def delete(self, name: str) -> None:
        """Deletes a file, if it exists."""

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, sorted; empty if it does not exist."""


class DirectoryStore:
    """A local directory. Files are synced, and renamed into place when they are complete."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes | None:
        """Returns a file's content; None if it does not exist."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed("read", self._root / name, error) from None

    def write(self, name: str, content: bytes) -> None:
        """Writes or replaces a file, durably."""
        path = self._root / name
        unfinished = path.with_name(path.name + _UNFINISHED)
        try:
            _make_folder(path.parent)
            with open(unfinished, "wb", opener=_for_its_owner) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            raise _failed("write", path, error) from None

    def delete(self, name: str) -> None:
        """Deletes a file."""
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            raise _failed("delete", self._root / name, error) from None

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder."""
        try:
            found = sorted(path.name for path in (self._root / folder).iterdir() if path.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed("list", self._root / folder, error) from None
        return [f"{folder}/{name}" for name in found if not name.endswith(_UNFINISHED)]


class RemoteStore:
    """Storage that fsspec supports. An upload appears there when it is complete.

    Arguments:
        filesystem: of fsspec.
        root: the path of the backup in it.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def read(self, name: str) -> bytes | None:
        """Returns a file's content; None if it does not exist."""
        try:
            content: bytes = self._filesystem.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        except Exception as error:  # Each file system has its own exceptions.
            raise _failed("read", f"{self._root}/{name}", error) from None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Writes or replaces a file."""
        path = f"{self._root}/{name}"
        try:
            self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._filesystem.pipe_file(path, content)
        except Exception as error:
            raise _failed("write", path, error) from None

    def delete(self, name: str) -> None:
        """Deletes a file."""
        try:
            self._filesystem.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return
        except Exception as error:
            raise _failed("delete", f"{self._root}/{name}", error) from None

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder."""
        try:
            found: list[str] = self._filesystem.ls(f"{self._root}/{folder}", detail=False, refresh=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise _failed("list", f"{self._root}/{folder}", error) from None
        return sorted(f"{folder}/{path.rstrip('/').rpartition('/')[2]}" for path in found)


def open_store(location: str) -> BackupStore:
    """Returns the storage for a path or an address such as ``s3://bucket/prefix``.

    Raises:
        IllegalArgumentError: the location is invalid, or the library for it is not installed.
    """
    if not location:
        raise IllegalArgumentError("the place of the backup is empty: give a directory, or an address of fsspec")
    if "://" not in location:
        if os.path.isfile(location):
            raise IllegalArgumentError(f"{location} is a file: give the directory of the backup")
        return DirectoryStore(Path(location))
    try:
        import fsspec
    except ImportError:
        raise IllegalArgumentError(
            f"{location} is reached through fsspec, which is not installed: pip install 'quorumlog[backup]'"
        ) from None
    try:
        filesystem, root = fsspec.core.url_to_fs(location)
    except (ImportError, ValueError) as error:
        raise IllegalArgumentError(f"{location} cannot be reached: {error}") from None
    return RemoteStore(filesystem, root)


def _make_folder(folder: Path) -> None:
    """Creates a folder and its parents, durably."""
    missing = [folder, *folder.parents]
    missing = missing[: next((place for place, each in enumerate(missing) if each.exists()), len(missing))]
    for made in reversed(missing):
        made.mkdir(_FOLDER_MODE, exist_ok=True)
    for made in missing:
        _sync_folder(made.parent)


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(what: str, path: object, error: Exception) -> BackupStoreError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    return BackupStoreError(f"cannot {what} {path}: {reason}")
