"""``quorumlog recover``: survey, plan, apply, and all three at once for nodes of one machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError, os_problem
from quorumlog.cli.options import Output, OutputFormat, directory_path, file_path, read_json
from quorumlog.cli.rendering import print_json

if TYPE_CHECKING:
    from quorumlog.server.recovery.plan import RecoveryPlan

app = typer.Typer(no_args_is_help=True, help="The last resort after a majority is lost for ever: survey, plan, apply.")

Directory = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=directory_path,
        help="The data directory of a survivor, which must not be running.",
    ),
]
Acceptance = Annotated[
    bool, typer.Option("--accept-loss", help="You have read the plan, and the other nodes never come back.")
]
_SURVEY_FORM = "what quorumlog recover survey printed"
_PLAN_FORM = "what quorumlog recover plan printed"
#: The file beside the data that has the plan of ``recover local``.
_KEPT_PLAN = "recovery-plan.json"


@app.callback()
def recover() -> None:
    """Recovery from the loss of a majority."""


@app.command("survey", epilog="Example: quorumlog recover survey --data-dir /var/lib/quorumlog > node-1.json")
def survey(*, data_dir: Directory) -> None:
    """Prints what a stopped survivor holds, for the plan. Changes nothing. To be done on each survivor."""
    from quorumlog.server.recovery.directory import survey_directory

    print_json(survey_directory(data_dir).to_json())


@app.command("plan", epilog="Example: quorumlog recover plan node-1.json node-4.json > plan.json")
def plan(
    files: Annotated[
        list[Path], typer.Argument(metavar="SURVEY…", parser=file_path, help="The surveys of all survivors.")
    ],
) -> None:
    """Prints who goes on with what, and says in words (on standard error) what is lost or may be lost. Changes
    nothing."""
    from quorumlog.server.recovery.plan import make_plan
    from quorumlog.server.recovery.survey import Survey

    made = make_plan([Survey.from_json(read_json(file, _SURVEY_FORM), str(file)) for file in files])
    for line in made.report:
        print(line, file=sys.stderr)
    print_json(made.to_json())


@app.command("apply", epilog="Example: quorumlog recover apply plan.json --data-dir /var/lib/quorumlog --accept-loss")
def apply(
    file: Annotated[Path, typer.Argument(metavar="PLAN", parser=file_path, help="The plan.", show_default=False)],
    *,
    data_dir: Directory,
    accept_loss: Acceptance = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Makes a stopped survivor part of the recovered cluster. To be done on each survivor, with the same plan, before
    any of them is started. Broken off, or done twice, it is simply done again."""
    from quorumlog.server.recovery.plan import RecoveryPlan

    made = RecoveryPlan.from_json(read_json(file, _PLAN_FORM), str(file))
    _require_acceptance(made, accepted=accept_loss)
    _apply(made, [data_dir], output)


@app.command("local", epilog="Example: quorumlog recover local --data-dir a/node-1 --data-dir a/node-4 --accept-loss")
def local(
    *,
    data_dirs: Annotated[
        list[Path],
        typer.Option(
            "--data-dir",
            metavar="DIR",
            parser=directory_path,
            help="The data directory of a survivor; once for each of them.",
        ),
    ],
    accept_loss: Acceptance = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """All three at once, where all survivors' directories are on this machine. Without --accept-loss it only says what
    is lost or may be lost. The plan is kept in the first directory: if this is broken off, go on with recover apply."""
    from quorumlog.server.recovery.directory import survey_directory
    from quorumlog.server.recovery.plan import make_plan

    made = make_plan([survey_directory(each) for each in data_dirs])
    for line in made.report:
        print(line, file=sys.stderr)
    _require_acceptance(made, accepted=accept_loss)
    # What is surveyed once more is another cluster already, or half of one: only this plan fits all of them.
    kept = data_dirs[0] / _KEPT_PLAN
    try:
        kept.write_text(json.dumps(made.to_json()))
    except OSError as error:
        raise CommandError(f"cannot keep the plan in {kept}: {os_problem(error)}; nothing was changed") from None
    try:
        _apply(made, data_dirs, output)
    except Exception:
        each = f"quorumlog recover apply {kept} --data-dir DIR --accept-loss"
        print(f"the plan is in {kept}: go on with it, for each directory: {each}", file=sys.stderr)
        raise


def _require_acceptance(made: RecoveryPlan, *, accepted: bool) -> None:
    if accepted:
        return
    from quorumlog.server.recovery.plan import Loss

    at_risk = sum(each.loss is not Loss.NOTHING for each in made.outcomes.values())
    nodes = ", ".join(map(str, made.lost)) or "none"
    raise CommandError(
        f"{at_risk} of {len(made.outcomes)} partitions lose records or may lose them, and the lost nodes ({nodes}) can"
        " never come back with their data: read the plan's report, then say --accept-loss",
        WRONG_USAGE,
    )


def _apply(made: RecoveryPlan, data_dirs: list[Path], output: OutputFormat) -> None:
    from quorumlog.server.recovery.directory import apply_plan

    done = {each: apply_plan(made, each) for each in data_dirs}
    if output is OutputFormat.JSON:
        rows = [{"data_dir": str(each), "changed": changed} for each, changed in done.items()]
        print_json({"cluster_id": made.cluster_id, "directories": rows})
        return
    for each, changed in done.items():
        if changed:
            print(f"{each}: part of cluster {made.cluster_id} now; start the node once all survivors are")
        else:
            print(f"{each}: was made part of cluster {made.cluster_id} before; nothing was changed")
