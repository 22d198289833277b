"""Certificates: created, read, accepted only in pairs, and read again once they were replaced."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.cli.certs.commands import show
from quorumlog.cli.options import OutputFormat
from quorumlog.server.certificates import pairs
from quorumlog.server.certificates.inspection import problems_of, view_of, views_of
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
from quorumlog.server.certificates.names import node_of, user_of
from quorumlog.server.certificates.pairs import Pair, WatchedPair, changed_since, read_pair
from quorumlog.server.certificates.x509 import CertificateError, serial_number, validity
from quorumlog.server.config.options import PairFiles

DAY_S = 86_400


@pytest.fixture
def authority(tmp_path: Path) -> Issued:
    return create_authority(tmp_path, "node-ca")


@pytest.fixture
def node(tmp_path: Path, authority: Issued) -> Issued:
    return create_node(tmp_path, authority, 3, ["127.0.0.1", "log-3.example.net"])


def test_a_certificate_says_of_whom_it_is_and_for_which_hosts(tmp_path: Path, authority: Issued, node: Issued) -> None:
    view = view_of(node.certificate)
    assert (view.kind, view.node_id, view.days_left) == ("node", 3, 397)
    assert view.names == ("node-3.quorumlog.internal", "log-3.example.net", "127.0.0.1")
    client = view_of(create_client(tmp_path, authority, "alice").certificate)
    assert (client.kind, client.user, client.node_id) == ("user", "alice", None)
    assert view_of(authority.certificate).kind == "authority"
    assert list(problems_of(node.certificate, node.key, authority.certificate)) == []


def test_each_certificate_of_a_file_is_shown(
    tmp_path: Path, authority: Issued, node: Issued, capsys: pytest.CaptureFixture[str]
) -> None:
    """All certificates of a file are shown: it has two authorities while one replaces the other."""
    both = tmp_path / "both.crt"
    following = create_authority(tmp_path, "next-ca")
    both.write_bytes(authority.certificate.read_bytes() + following.certificate.read_bytes())
    serials = [view_of(each.certificate).serial for each in (authority, following)]
    assert [view.serial for view in views_of(both)] == serials
    show(both)
    shown = capsys.readouterr().out
    assert all(serial in shown for serial in serials)
    show(node.certificate)
    assert "node 3" in capsys.readouterr().out
    show(both, output=OutputFormat.JSON)
    assert [each["serial"] for each in json.loads(capsys.readouterr().out)] == serials


def test_keys_are_their_owners_alone_and_nothing_is_written_over(tmp_path: Path, authority: Issued) -> None:
    assert stat.S_IMODE(authority.key.stat().st_mode) == 0o600
    before = authority.key.read_bytes()
    with pytest.raises(CertificateError, match="exists already"):
        create_authority(tmp_path, "node-ca")
    (tmp_path / "client-ca.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CertificateError, match="exists already"):
        create_authority(tmp_path, "client-ca")
    assert authority.key.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_serial_numbers_are_read_as_shown(authority: Issued, node: Issued) -> None:
    for made in (authority, node):
        assert serial_number(made.certificate.read_bytes()) == view_of(made.certificate).serial
    with pytest.raises(CertificateError):
        serial_number(b"none")


def test_validity_is_read_as_shown(authority: Issued, node: Issued) -> None:
    for each in (authority, node):
        view = view_of(each.certificate)
        assert validity(each.certificate.read_bytes()) == (view.begins.timestamp(), view.ends.timestamp())


@given(st.data())
def test_no_bytes_make_the_reader_of_times_fail_otherwise(data: st.DataObject) -> None:
    body = data.draw(st.binary(max_size=200))
    with pytest.raises(CertificateError):
        validity(b"-----BEGIN CERTIFICATE-----" + body + b"-----END CERTIFICATE-----")


def test_what_a_node_cannot_use_is_said_in_one_line(tmp_path: Path, authority: Issued, node: Issued) -> None:
    files = PairFiles(node.certificate, node.key, authority.certificate)
    assert read_pair(files).validity.ends_s > 397 * DAY_S
    with pytest.raises(CertificateError, match="expired at"):
        read_pair(files, lambda: 1e11)
    with pytest.raises(CertificateError, match="check the clock"):
        read_pair(files, lambda: 0.0)
    with pytest.raises(CertificateError, match="is not the key of"):
        read_pair(PairFiles(node.certificate, authority.key))
    with pytest.raises(CertificateError, match="has no certificate"):
        read_pair(PairFiles(node.key, node.key))
    with pytest.raises(CertificateError, match="cannot read"):
        read_pair(PairFiles(tmp_path / "none", node.key))
    node.key.chmod(0o640)
    with pytest.raises(CertificateError, match="readable by users other"):
        read_pair(files)


def test_a_pair_is_taken_once_both_of_it_have_been_replaced(
    tmp_path: Path, authority: Issued, node: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "LOOKED_AT_S", 0.0)
    refused: list[str] = []
    taken: list[Pair] = []
    watched = WatchedPair(PairFiles(node.certificate, node.key), refused.append, taken.append)
    first = watched.pair
    assert watched.current() is first
    fresh = create_node(tmp_path / "fresh", authority, 3, [])
    os.replace(fresh.certificate, node.certificate)
    assert watched.current() is first
    assert watched.current() is first
    assert len(refused) == 1 and "is not the key of" in refused[0]
    os.replace(fresh.key, node.key)
    changed = watched.current()
    assert changed != first
    assert taken == [changed] and watched.current() is changed and len(refused) == 1


def test_whoever_only_looks_at_a_pair_takes_no_change_from_those_that_serve_with_it(
    tmp_path: Path, authority: Issued, node: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "LOOKED_AT_S", 0.0)
    watched = WatchedPair(PairFiles(node.certificate, node.key), lambda reason: None, lambda pair: None)
    served = watched.pair
    fresh = create_node(tmp_path / "fresh", authority, 3, [])
    os.replace(fresh.certificate, node.certificate)
    os.replace(fresh.key, node.key)
    # The metric of its end is read, before a connection comes.
    looked_at = watched.current()
    assert looked_at != served
    assert changed_since(watched, served) is looked_at
    assert changed_since(watched, looked_at) is None


def test_authorities_are_taken_whole(
    tmp_path: Path, authority: Issued, node: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "LOOKED_AT_S", 0.0)
    second = create_authority(tmp_path / "second", "node-ca").certificate.read_bytes()
    first = authority.certificate.read_bytes()
    files = PairFiles(node.certificate, node.key, authority.certificate)
    refused: list[str] = []
    watched = WatchedPair(files, refused.append, lambda pair: None)
    for cut in (second[: len(second) // 2], second[40:], b"-----BEGIN CERTIFICATE-----\nAAAA\n" + second):
        authority.certificate.write_bytes(first + cut)
        assert watched.current().authorities == first, cut
    assert refused and all(str(authority.certificate) in said for said in refused)
    authority.certificate.write_bytes(first + b"# the next one\n" + second)
    assert watched.current().authorities == first + b"# the next one\n" + second


def test_a_certificate_may_be_of_one_of_several_authorities(tmp_path: Path, authority: Issued, node: Issued) -> None:
    second = create_authority(tmp_path / "second", "node-ca")
    other = create_node(tmp_path / "second", second, 4, [])
    both = tmp_path / "both.crt"
    both.write_bytes(second.certificate.read_bytes() + authority.certificate.read_bytes())
    for made in (node, other):
        assert list(problems_of(made.certificate, made.key, both)) == []
    assert "was not signed by" in "; ".join(problems_of(node.certificate, node.key, second.certificate))


def test_problems_are_found(tmp_path: Path, authority: Issued, node: Issued) -> None:
    other = create_authority(tmp_path, "other-ca")
    short = create_node(tmp_path / "short", authority, 3, [], days=5)
    short.key.chmod(0o644)
    said = "; ".join(problems_of(short.certificate, short.key, other.certificate))
    assert "expires in" in said and "other than its owner" in said and "not signed by" in said
    assert "is not the key" in "; ".join(problems_of(node.certificate, authority.key, None))


@pytest.mark.parametrize("uri", ["quorumlog:node:", "quorumlog:node:03", "quorumlog:node:3 ", "quorumlog:node:-1", "3"])
def test_what_is_no_nodes_uri_names_none(uri: str) -> None:
    assert node_of(uri) is None
    assert user_of(uri) is None


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 250, "-\n"])
def test_some_names_are_nobodys(tmp_path: Path, authority: Issued, name: str) -> None:
    with pytest.raises(CertificateError, match="is not a valid user name"):
        create_client(tmp_path, authority, name)


@pytest.mark.parametrize("host", ["node-2.quorumlog.internal", "NODE-2.Quorumlog.Internal", "quorumlog.internal", "*"])
def test_no_nodes_certificate_has_the_name_of_another_node(tmp_path: Path, authority: Issued, host: str) -> None:
    with pytest.raises(CertificateError, match=f"^'{host.replace('*', '.')}' is [^\n]*$"):
        create_node(tmp_path, authority, 3, [host])
    assert create_node(tmp_path, authority, 3, ["not-quorumlog.internal"])


def test_a_fix_of_permissions_alone_is_noticed(
    tmp_path: Path, authority: Issued, node: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of permissions alone is noticed, although it changes neither the key's time nor its size."""
    monkeypatch.setattr(pairs, "LOOKED_AT_S", 0.0)
    refused: list[str] = []
    taken: list[Pair] = []
    watched = WatchedPair(PairFiles(node.certificate, node.key), refused.append, taken.append)
    first = watched.pair
    fresh = create_node(tmp_path / "fresh", authority, 3, [])
    fresh.key.chmod(0o644)
    os.replace(fresh.certificate, node.certificate)
    os.replace(fresh.key, node.key)
    for _ in range(3):
        assert watched.current() is first
    assert len(refused) == 1 and "other than its owner" in refused[0]
    before = node.key.stat()
    node.key.chmod(0o600)
    after = node.key.stat()
    assert (before.st_mtime_ns, before.st_size, before.st_ino) == (after.st_mtime_ns, after.st_size, after.st_ino)
    changed = watched.current()
    assert changed != first
    assert (taken, len(refused)) == ([changed], 1)


def test_each_new_reason_is_reported_again(
    tmp_path: Path, authority: Issued, node: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new reason is reported, also the same one again once the pair has been accepted in between."""
    monkeypatch.setattr(pairs, "LOOKED_AT_S", 0.0)
    refused: list[str] = []
    watched = WatchedPair(PairFiles(node.certificate, node.key), refused.append, lambda pair: None)
    for turn in (1, 2):
        fresh = create_node(tmp_path / f"fresh-{turn}", authority, 3, [])
        os.replace(fresh.certificate, node.certificate)
        watched.current()
        assert len(refused) == turn
        os.replace(fresh.key, node.key)
        watched.current()


@pytest.mark.parametrize(("at", "words"), [("begins_s", ""), ("ends_s", ""), (-1, "valid from"), (1, "expired at")])
def test_certificates_are_valid_to_the_second(node: Issued, at: str | int, words: str) -> None:
    valid = validity(node.certificate.read_bytes())
    now_s = getattr(valid, at) if isinstance(at, str) else (valid.begins_s - 1 if at < 0 else valid.ends_s + 1)
    files = PairFiles(node.certificate, node.key)
    if not words:
        assert read_pair(files, lambda: now_s).validity == valid
        return
    with pytest.raises(CertificateError, match=words):
        read_pair(files, lambda: now_s)
