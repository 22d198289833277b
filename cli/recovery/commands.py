"""``quorumlog recover``: survey, plan and apply, or all three at once for nodes of one machine."""

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

app = typer.Typer()

Directory = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=directory_path,
        help="Data directory of a survivor, which must not be running.",
    ),
]
Acceptance = Annotated[
    bool,
    typer.Option(
        "--accept-loss", help="Confirm that you have read the plan, and that the other nodes will never return."
    ),
]
_SURVEY_FORM = "the output of quorumlog recover survey"
_PLAN_FORM = "the output of quorumlog recover plan"
#: The file beside the data with the plan of ``recover local``.
_KEPT_PLAN = "recovery-plan.json"


@app.callback()
def recover() -> None:
    """Recovery from the loss of a majority."""


@app.command("survey", epilog="Example: quorumlog recover survey --data-dir /var/lib/quorumlog > node-1.json")
def survey(*, data_dir: Directory) -> None:
    """Prints the contents of a stopped survivor, for the plan. Changes nothing. Run it on each survivor."""
    from quorumlog.server.recovery.directory import survey_directory

    print_json(survey_directory(data_dir).to_json())


@app.command("plan", epilog="Example: quorumlog recover plan node-1.json node-4.json > plan.json")
def plan(
    files: Annotated[list[Path], typer.Argument(metavar="SURVEY…", parser=file_path, help="Surveys of survivors.")],
) -> None:
    """Prints the plan: which survivor continues with which data. Explains on standard error what is or may be lost.
    Changes nothing.
    """
    from quorumlog.server.recovery.plan import make_plan
    from quorumlog.server.recovery.survey import Survey

    made = make_plan([Survey.from_json(read_json(file, _SURVEY_FORM), str(file)) for file in files])
    for line in made.report:
        print(line, file=sys.stderr)
    print_json(made.to_json())


@app.command("apply", epilog="Example: quorumlog recover apply plan.json --data-dir /var/lib/quorumlog --accept-loss")
def apply(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN", parser=file_path, help="Plan, as printed by 'recover plan'.", show_default=False
        ),
    ],
    *,
    data_dir: Directory,
    accept_loss: Acceptance = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Makes a stopped survivor part of the recovered cluster. Run it on each survivor, with the same plan, before any
    of them is started. It can be repeated after an interruption.
    """
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
            help="Data directory of a survivor; repeat for each.",
        ),
    ],
    accept_loss: Acceptance = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Runs survey, plan and apply, if all survivors' directories are on this machine. Without --accept-loss it only
    prints what is lost or may be lost. The plan is kept in the first directory: after an interruption continue with
    recover apply.
    """
    from quorumlog.server.recovery.directory import survey_directory
    from quorumlog.server.recovery.plan import make_plan

    made = make_plan([survey_directory(each) for each in data_dirs])
    for line in made.report:
        print(line, file=sys.stderr)
    _require_acceptance(made, accepted=accept_loss)
    # A second survey would find another cluster already, or half of one: only this plan fits all directories.
    kept = data_dirs[0] / _KEPT_PLAN
    try:
        kept.write_text(json.dumps(made.to_json()))
    except OSError as error:
        raise CommandError(f"cannot keep the plan in {kept}: {os_problem(error)}; nothing was changed") from None
    try:
        _apply(made, data_dirs, output)
    except Exception:
        each = f"quorumlog recover apply {kept} --data-dir DIR --accept-loss"
        print(f"the plan is in {kept}: continue with it, for each directory: {each}", file=sys.stderr)
        raise


def _require_acceptance(made: RecoveryPlan, *, accepted: bool) -> None:
    if accepted:
        return
    from quorumlog.server.recovery.plan import Loss

    at_risk = sum(each.loss is not Loss.NOTHING for each in made.outcomes.values())
    nodes = ", ".join(map(str, made.lost)) or "none"
    raise CommandError(
        f"{at_risk} of {len(made.outcomes)} partitions lose records or may lose them, and the lost nodes ({nodes}) can"
        " never return with their data: read the plan's report, then add --accept-loss",
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
            print(f"{each}: now part of cluster {made.cluster_id}; start the node once all survivors are")
        else:
            print(f"{each}: already part of cluster {made.cluster_id}; nothing was changed")
