"""``quorumlog chaos``: real faults on real processes, and a verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from quorumlog.chaos.hostile.caller import HostileCaller
from quorumlog.cli.boundary import FAILED, WRONG_USAGE, CommandError, os_problem
from quorumlog.cli.options import Output, OutputFormat, directory_path, file_path
from quorumlog.cli.rendering import print_json, print_table

app = typer.Typer(
    no_args_is_help=True, help="Faults on real node processes under load, and a verdict: run, list, fuzz."
)


@app.command("run", epilog="Example: quorumlog chaos run kill-leader --rounds 3 --seed 7 --report reports")
def run(
    scenario: Annotated[str, typer.Argument(help="One of 'quorumlog chaos list'.")],
    *,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="How often the fault strikes; by default as often as listed."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Chooses victims; else drawn and printed.")] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration", min=0, max=86_400, metavar="SECONDS", help="Begin no round after this; hold steady so long."
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option("--load", min=0.01, max=10, metavar="SHARE", help="Of the peak rate, where nothing is hurt; 0.8."),
    ] = None,
    records: Annotated[int | None, typer.Option("--records", min=1, help="Sent in all by exactly-once; 60000.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="DIR", parser=directory_path, help="Write history and verdict into this directory."
        ),
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="With TLS, sign-in by password, and rules of who may do what.")
    ] = False,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="By Kafka's own client (librdkafka): exactly-once and groups.")
    ] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Runs a cluster of its own under load, hurts it in rounds, and checks every acknowledgement; 1 on anomalies."""
    # Connections are meant to break here: gRPC's own lines about it would drown the report.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from quorumlog.chaos.processes.scenarios import run_scenario
    from quorumlog.chaos.processes.steady import DEFAULT_LOAD

    as_json = output is OutputFormat.JSON
    outcome = run_scenario(
        scenario,
        seed=seed,
        duration_s=duration,
        rounds=rounds,
        report_dir=report,
        load=DEFAULT_LOAD if load is None else load,
        records=records,
        say=lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True),
        secure=secure,
        kafka=kafka,
    )
    if as_json:
        print(outcome.to_json())
    if not outcome.passed:
        raise typer.Exit(FAILED)


@app.command("list", epilog="Example: quorumlog chaos list")
def list_scenarios(output: Output = OutputFormat.TABLE) -> None:
    """The scenarios and what they do."""
    from quorumlog.chaos.processes.scenarios import SCENARIOS

    if output is OutputFormat.JSON:
        print_json([{"name": one.name, "summary": one.summary, "rounds": one.rounds} for one in SCENARIOS.values()])
        return
    print_table(
        ("Scenario", "Rounds", "What happens"), ((one.name, one.rounds, one.summary) for one in SCENARIOS.values())
    )


@app.command("fuzz", epilog="Example: quorumlog chaos fuzz --requests 1000000 --seed 7 --report found")
def fuzz_nodes(
    *,
    requests: Annotated[
        int, typer.Option("--requests", min=1, help="How many requests are sent, by all clients together.")
    ] = 20_000,
    seed: Annotated[int | None, typer.Option("--seed", help="Decides on the requests; else drawn and printed.")] = None,
    caller: Annotated[
        HostileCaller,
        typer.Option("--as", help="As whom: but for anybody, nodes have TLS, and clients need permission."),
    ] = HostileCaller.ANYBODY,
    duration: Annotated[
        float | None,
        typer.Option("--duration", min=1, max=86_400, metavar="SECONDS", help="Send nothing after this time."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes full of clients.")] = 2,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="DIR",
            parser=directory_path,
            help="Write verdict and last requests into this directory.",
        ),
    ] = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="By Kafka's protocol, on the port for its clients.")] = False,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", metavar="FILE", parser=file_path, help="Send what an earlier run has recorded, instead."
        ),
    ] = None,
    reduce: Annotated[
        bool, typer.Option("--reduce", help="With --replay: find the fewest requests that still do harm.")
    ] = False,
    batches: Annotated[
        int | None,
        typer.Option(
            "--batches",
            min=1,
            max=10_000_000,
            metavar="N",
            help="Instead: send so many Kafka batches with wrong headers, and read what is accepted with every reader.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="With --batches: read with Spark too.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Sends valid and nearly valid requests to a cluster of its own; 1 if a node ends, breaks or works no more."""
    if kafka and (replay is not None or not (caller is HostileCaller.ANYBODY or caller.by_password)):
        raise CommandError(
            "--kafka is for anybody, unsigned and signed-in, and recorded by nobody: leave --replay out", WRONG_USAGE
        )
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from quorumlog.chaos.hostile.fuzzer import fuzz
    from quorumlog.chaos.hostile.replay import replay as send_again

    as_json = output is OutputFormat.JSON

    def say(line: str) -> None:
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)

    if batches is not None:
        from quorumlog.chaos.hostile.old_clients import fuzz_batches

        if not fuzz_batches(batches=batches, seed=seed, spark=spark, say=say).passed:
            raise typer.Exit(FAILED)
        return
    if replay is not None:
        try:
            findings = send_again(replay, reduce=reduce, say=say)
        except (OSError, ValueError) as error:
            problem = os_problem(error) if isinstance(error, OSError) else error
            raise CommandError(f"{replay} cannot be sent again: {problem}") from None
        if as_json:
            print_json(findings)
        if findings:
            raise typer.Exit(FAILED)
        return
    outcome = fuzz(
        requests=requests,
        seed=seed,
        caller=caller,
        duration_s=duration,
        workers=workers,
        report_dir=report,
        kafka=kafka,
        say=say,
    )
    if as_json:
        print(outcome.to_json())
    if not outcome.passed:
        raise typer.Exit(FAILED)
