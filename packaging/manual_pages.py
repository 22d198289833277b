"""Manual pages of the command line, one for each command, made of what the commands say of themselves.

python packaging/manual_pages.py build/man 0.2.0    # then: man build/man/quorumlog-topics-create.1
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from quorumlog.cli.main import app

#: A command as typer has built it; its class has no public name.
Command = Any

#: What troff would take for something else, or print as another character than can be copied into a shell.
ESCAPES = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq", "…": "..."}
)
EXIT_STATUSES = (
    ("0", "What was asked for is done."),
    ("1", "It failed; one line on standard error says why, and what to do."),
    ("2", "The command line is wrong; nothing was done."),
    ("130", "It was interrupted."),
)


def escaped(text: str) -> str:
    """Text as troff prints it unchanged."""
    plain = text.translate(ESCAPES)
    return f"\\&{plain}" if plain.startswith((".", "\\(aq")) else plain


def contexts_of(context: typer.Context) -> Iterator[typer.Context]:
    """The contexts of a command and of all below it that are shown in help. Each says what is typed for its command."""
    yield context
    command: Command = context.command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            settings = below.context_settings
            yield from contexts_of(typer.Context(below, parent=context, info_name=name, **settings))


def whole_tree() -> Iterator[typer.Context]:
    """The contexts of all commands."""
    command: Command = typer.main.get_command(app)
    return contexts_of(typer.Context(command, info_name="quorumlog", **command.context_settings))


def page_name(context: typer.Context) -> str:
    """The argument of ``man``."""
    return context.command_path.replace(" ", "-")


def manual_page(context: typer.Context, version: str) -> str:
    """The source of a command's page, for ``man``."""
    command: Command = context.command
    summary, *paragraphs = paragraphs_of(command.help)
    name = escaped(page_name(context))
    # Words are not broken, nor lines filled up: what is shown is also copied.
    lines = [f'.TH {name.upper()} 1 "" "quorumlog {escaped(version)}" "quorumlog"', ".nh", ".ad l"]
    lines += [".SH NAME", f"{name} \\- {escaped(first_sentence(summary))}"]
    lines += [".SH SYNOPSIS", f"\\fB{escaped(context.command_path)}\\fP"]
    lines += [escaped(" ".join(command.collect_usage_pieces(context)))]
    lines += [".SH DESCRIPTION", escaped(summary)]
    for paragraph in paragraphs:
        lines += [".PP", escaped(paragraph)]
    records = [(each.param_type_name, each.get_help_record(context)) for each in command.get_params(context)]
    for kind in ("argument", "option"):
        lines += section(f"{kind.upper()}S", [record for its_kind, record in records if record and its_kind == kind])
    below = [each for each in contexts_of(context) if each.parent is context]
    lines += section("COMMANDS", [(each.command_path, paragraphs_of(each.command.help)[0]) for each in below])
    if command.epilog:
        lines += [".SH EXAMPLES", ".nf", *map(escaped, examples_of(command.epilog)), ".fi"]
    lines += section("EXIT STATUS", EXIT_STATUSES)
    related = sorted(page_name(each) for each in [*filter(None, [context.parent]), *below])
    lines += [".SH SEE ALSO", ",\n".join(f"\\fB{escaped(each)}\\fP(1)" for each in related)]
    return "\n".join(lines) + "\n"


def section(title: str, records: Sequence[tuple[str, str]]) -> list[str]:
    """A list of terms, each with what it means."""
    lines = [f".SH {title}"] if records else []
    for term, meaning in records:
        typed, _, stands_for = term.partition(" <") if " <" in term else (term, "", "")
        lines += [".TP", f"\\fB{escaped(typed)}\\fP" + escaped(stands_for and f" <{stands_for}")]
        lines += [escaped(" ".join(meaning.split()))]
    return lines


def paragraphs_of(text: str | None) -> list[str]:
    """Its paragraphs, each in one line."""
    return [" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n")]


def first_sentence(text: str) -> str:
    """Returns its first sentence, for the NAME section of a page."""
    return re.split(r"[.;] ", text, maxsplit=1)[0].removesuffix(".")


def examples_of(epilog: str) -> list[str]:
    """The commands of an epilog, one per line."""
    return [each.strip() for each in re.split(r"\s{4,}or: ", re.sub(r"^[\b\s]*[A-Z][a-z ]*: ", "", epilog))]


def write_pages(folder: Path, version: str) -> list[Path]:
    """Writes the page of every command into a folder, which is made.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for context in whole_tree():
        page = folder / f"{page_name(context)}.1"
        page.write_text(manual_page(context, version))
        written.append(page)
    return written


def main() -> None:
    """Writes the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("version")
    arguments = parser.parse_args()
    write_pages(arguments.folder, arguments.version)


if __name__ == "__main__":
    main()
