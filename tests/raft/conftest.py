import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        default=False,
        help="write what the Raft transcripts print now as what they should print; review the diff",
    )


@pytest.fixture
def rewrite_transcripts(request: pytest.FixtureRequest) -> bool:
    # Unknown when this folder's conftest was not loaded at the start of the run.
    return bool(request.config.getoption("--rewrite-transcripts", default=False))
