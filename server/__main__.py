"""``python -m quorumlog.server``: one node, or all workers of a machine, in the foreground."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

# gRPC's C core would add its own lines to the one that says what is wrong.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# structlog loads rich, a seventh of this process's start, for a console renderer that a node does not use; it does
# without where none exists.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # the documented way to forbid an import
# What is imported stays: collections would find nothing, for an eighth of this process's start.
gc.disable()

from quorumlog.server.config.settings import Settings, SettingsError, load  # noqa: E402
from quorumlog.server.process.start_log import StartLog, chosen_format  # noqa: E402
from quorumlog.server.process.workers import run_machine  # noqa: E402  # after what it must find

gc.freeze()
gc.enable()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def make_parser() -> argparse.ArgumentParser:
    """The command line: one flag per setting."""
    parser = _Parser(prog="python -m quorumlog.server", description="Runs one node.", allow_abbrev=False)
    parser.add_argument("--config", type=Path, help="a TOML file with settings")
    parser.add_argument("--life-line", type=int, help=argparse.SUPPRESS)
    for name, field in Settings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        if field.annotation is bool:
            parser.add_argument(flag, nargs="?", const="true", metavar="BOOLEAN", help=field.description)
        else:
            parser.add_argument(flag, help=field.description)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and runs the node; returns the exit status."""
    flags: dict[str, object] = {}
    config: Path | None = None
    try:
        parsed, unknown = make_parser().parse_known_args(arguments)
        config = parsed.config
        flags = {name: getattr(parsed, name) for name in Settings.model_fields}
        flags |= {word.removeprefix("--").partition("=")[0].replace("-", "_"): word for word in unknown}
        settings = load(flags, config)
    except SettingsError as error:
        StartLog(chosen_format(flags, config)).error(str(error))
        return 1
    return run_machine(settings, parsed.life_line)


if __name__ == "__main__":
    sys.exit(main())
