"""A console of a cluster whose nodes identify their clients by certificate."""

from __future__ import annotations

import http.cookiejar
import json
import urllib.request

import pytest
from browsing import running_console

from quorumlog.local import LocalCluster


def drawn(opener: urllib.request.OpenerDirector, url: str) -> set[str]:
    """Returns the keys that are shown once a node is shown."""
    seen: set[str] = set()
    with opener.open(url, timeout=30) as stream:
        for line in stream:
            if line.startswith(b"data:"):
                seen |= json.loads(line.removeprefix(b"data:"))["set"].keys()
                if any(name.startswith("node") for name in seen):
                    return seen
    raise AssertionError("the stream ended")


@pytest.mark.cluster
def test_the_console_reaches_nodes_as_commands_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(nodes=1, tls=True) as cluster:
        assert cluster.certificates is not None
        monkeypatch.setenv("QUORUMLOG_COMMAND_CONFIG", str(cluster.certificates.properties))
        with running_console(cluster.bootstrap_servers) as url:
            jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
            opener = urllib.request.build_opener(jar)
            with opener.open(url, timeout=30) as page:
                assert page.status == 200
            assert drawn(opener, f"{url.partition('?')[0]}events")
