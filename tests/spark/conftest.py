"""One Spark session for the whole run: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from quorumlog.sdk.spark import local_session
from tests.support.secured_spark import SECURED, SecuredCluster, secure_everything
from tests.support.standalone import QUICK

if SECURED:
    secure_everything()

    @pytest.fixture(scope="module")
    def quorumlog_cluster() -> Iterator[SecuredCluster]:
        """In place of the plug-in's."""
        with SecuredCluster() as cluster:
            yield cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session as users get it, with the format registered by discovery; expected failures are not logged."""
    session = local_session("quorumlog tests", log_level="off", spark__driver__extraJavaOptions=QUICK)
    yield session
    session.stop()
