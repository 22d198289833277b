"""The place of a backup: a directory, or object storage through fsspec. A file appears whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from quorumlog.sdk.errors import IllegalArgumentError, QuorumlogError

#: Ends the name of a file that is being written.
_UNFINISHED = ".unfinished"
#: A backup holds what records hold: it is for its owner, as a node's data directory is.
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


class BackupStoreError(QuorumlogError):
    """The place of a backup cannot be read or written. The message says which file, and why."""


class BackupStore(Protocol):
    """Files by their names, which have ``/`` between their parts.

    Each call raises BackupStoreError where it fails.
    """

    def read(self, name: str) -> bytes | None:
        """A file; None where there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Puts a file there, in the place of one that has the name. It is durable when this returns."""

    def delete(self, name: str) -> None:
        """Takes a file away, if it is there."""

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted; none where there is no such folder."""


class DirectoryStore:
    """A directory of this machine. Files are synced, and named when they are whole."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes | None:
        """A file; None where there is none."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed("read", self._root / name, error) from None

    def write(self, name: str, content: bytes) -> None:
        """Puts a file there, durably."""
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
        """Takes a file away."""
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            raise _failed("delete", self._root / name, error) from None

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder."""
        try:
            found = sorted(path.name for path in (self._root / folder).iterdir() if path.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed("list", self._root / folder, error) from None
        return [f"{folder}/{name}" for name in found if not name.endswith(_UNFINISHED)]


class RemoteStore:
    """A place that fsspec reaches. There an upload appears when it is whole.

    Arguments:
        filesystem: of fsspec.
        root: the path of the place in it.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def read(self, name: str) -> bytes | None:
        """A file; None where there is none."""
        try:
            content: bytes = self._filesystem.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        except Exception as error:  # Each file system has errors of its own.
            raise _failed("read", f"{self._root}/{name}", error) from None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Puts a file there."""
        path = f"{self._root}/{name}"
        try:
            self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._filesystem.pipe_file(path, content)
        except Exception as error:
            raise _failed("write", path, error) from None

    def delete(self, name: str) -> None:
        """Takes a file away."""
        try:
            self._filesystem.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return
        except Exception as error:
            raise _failed("delete", f"{self._root}/{name}", error) from None

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder."""
        try:
            found: list[str] = self._filesystem.ls(f"{self._root}/{folder}", detail=False, refresh=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise _failed("list", f"{self._root}/{folder}", error) from None
        return sorted(f"{folder}/{path.rstrip('/').rpartition('/')[2]}" for path in found)


def open_store(location: str) -> BackupStore:
    """The place that a path or an address such as ``s3://bucket/prefix`` names.

    Raises:
        IllegalArgumentError: it names none, or what reaches it is not installed.
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
    """Makes a folder, durably: with those above it."""
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
