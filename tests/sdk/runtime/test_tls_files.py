"""The files of a client's TLS are read again when they change, and taken only when they are whole and fit."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from own_lines import own_lines

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.runtime.tls_files import LOOKED_AT_S, TlsFiles
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client


class Clock:
    """Seconds that the test counts."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += LOOKED_AT_S
        return self.now_s


class Folder:
    """A client's files, and those that are to take their place."""

    def __init__(self, root: Path) -> None:
        self.authority = create_authority(root, "node-ca")
        self.client = create_client(root, self.authority, "alice")
        self._spare = root / "spare"
        self._made = 0

    def files(self) -> TlsFiles:
        return TlsFiles(*map(str, (self.authority.certificate, self.client.certificate, self.client.key)), Clock())

    def another(self) -> Issued:
        self._made += 1
        return create_client(self._spare / str(self._made), self.authority, "alice")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_pair_is_taken_once_both_of_it_have_been_replaced(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="quorumlog.sdk")
    files, fresh = folder.files(), folder.another()
    assert files.look() == 1
    os.replace(fresh.certificate, folder.client.certificate)
    assert files.look() == files.look() == 1
    (said,) = own_lines(caplog)
    assert "is not the key of" in said
    assert "\n" not in said
    os.replace(fresh.key, folder.client.key)
    assert files.look() == files.look() == 2
    assert len(own_lines(caplog)) == 2


def test_what_is_not_whole_or_gone_is_not_taken(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    files, path = folder.files(), folder.authority.certificate
    whole = path.read_bytes()
    second = create_authority(path.parent / "second", "node-ca").certificate.read_bytes()
    assert files.look() == 1
    for content in (whole + second[:100], whole[:-40], b"", second.replace(b"M", b"N")):
        path.write_bytes(content)
        assert files.look() == 1, content
    path.unlink()
    assert files.look() == 1
    assert len(own_lines(caplog)) == len(set(own_lines(caplog)))
    # The former content is back: nothing is new.
    path.write_bytes(whole)
    assert files.look() == 1
    path.write_bytes(whole + "# Főtanúsítvány\n".encode() + second)
    assert files.look() == 2


def test_files_are_looked_at_now_and_then(folder: Folder) -> None:
    files = TlsFiles(str(folder.authority.certificate), None, None, lambda: 0.0)
    assert files.look() == 1
    with folder.authority.certificate.open("ab") as file:
        file.write(b"# a line of text\n")
    assert files.look() == 1
    assert files.look(at_once=True) == 2


def test_what_can_not_be_used_from_the_beginning_is_said_in_one_line(folder: Folder) -> None:
    other = folder.another()
    mixed = TlsFiles(None, str(folder.client.certificate), str(other.key))
    with pytest.raises(IllegalArgumentError, match="is not the key of"):
        mixed.look()
    no_authority = TlsFiles(str(folder.client.key), None, None)
    with pytest.raises(IllegalArgumentError, match="something else than certificates"):
        no_authority.credentials()
