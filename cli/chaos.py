"""``quorumlog chaos``: injects faults into real processes and prints a verdict."""

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

app = typer.Typer()


@app.command("run", epilog="Example: quorumlog chaos run kill-leader --rounds 3 --seed 7 --report reports")
def run(
    scenario: Annotated[str, typer.Argument(help="Scenario; 'quorumlog chaos list' prints all.")],
    *,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="Number of fault injections; by default the number in 'chaos list'."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed that selects victims; by default random and printed.")
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration",
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="Start no round after this time; for steady, the duration of the run.",
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            "--load",
            min=0.01,
            max=10,
            metavar="SHARE",
            help="Load as a share of the peak rate without faults; by default 0.8.",
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            "--records",
            min=1,
            help="Total records of exactly-once, by default 60000; transfers of transactions, by default 8000.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="DIR", parser=directory_path, help="Write history and verdict into this directory."
        ),
    ] = None,
    secure: Annotated[bool, typer.Option("--secure", help="Use TLS, password authentication and ACLs.")] = False,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Use librdkafka as the client, in the scenarios exactly-once and groups.")
    ] = False,
    client: Annotated[
        str | None,
        typer.Option(
            "--client",
            metavar="CLIENT",
            help="Client of transactions: librdkafka (default), or a command that starts a worker with another client.",
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Runs a cluster of its own under load, injects faults in rounds, and checks every acknowledgement; exits with 1
    on anomalies.
    """
    # Connections are broken on purpose here: gRPC's own messages about it would drown the report.
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
        client=client,
    )
    if as_json:
        print(outcome.to_json())
    if not outcome.passed:
        raise typer.Exit(FAILED)


@app.command("list", epilog="Example: quorumlog chaos list")
def list_scenarios(output: Output = OutputFormat.TABLE) -> None:
    """Lists the scenarios and what they do."""
    from quorumlog.chaos.processes.scenarios import SCENARIOS

    if output is OutputFormat.JSON:
        print_json([{"name": one.name, "summary": one.summary, "rounds": one.rounds} for one in SCENARIOS.values()])
        return
    print_table(
        ("Scenario", "Rounds", "Description"), ((one.name, one.rounds, one.summary) for one in SCENARIOS.values())
    )


@app.command("fuzz", epilog="Example: quorumlog chaos fuzz --requests 1000000 --seed 7 --report found")
def fuzz_nodes(
    *,
    requests: Annotated[
        int, typer.Option("--requests", min=1, help="Total number of requests of all clients.")
    ] = 20_000,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of the requests; by default random and printed.")
    ] = None,
    caller: Annotated[
        HostileCaller,
        typer.Option("--as", help="Caller to act as; except for anybody, nodes use TLS and ACLs."),
    ] = HostileCaller.ANYBODY,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration",
            min=1,
            max=86_400,
            metavar="SECONDS",
            help="Stop sending after this time; by default no limit.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Number of client processes.")] = 2,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="DIR",
            parser=directory_path,
            help="Write verdict and last requests into this directory.",
        ),
    ] = None,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Use Kafka's protocol, on the port for Kafka clients.")
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", metavar="FILE", parser=file_path, help="Send the requests that an earlier run recorded."
        ),
    ] = None,
    reduce: Annotated[
        bool, typer.Option("--reduce", help="With --replay: find the fewest requests that reproduce the failure.")
    ] = False,
    batches: Annotated[
        int | None,
        typer.Option(
            "--batches",
            min=1,
            max=10_000_000,
            metavar="N",
            help="Send N Kafka batches with wrong headers instead, and read the accepted ones with every reader.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="With --batches: read with Spark too.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Sends valid and nearly valid requests to a cluster of its own; exits with 1 if a node crashes, breaks or
    stops serving.
    """
    if kafka and (replay is not None or not (caller is HostileCaller.ANYBODY or caller.by_password)):
        raise CommandError(
            "--kafka supports only --as anybody, unsigned and signed-in, and no recordings: omit --replay", WRONG_USAGE
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
            raise CommandError(f"{replay} cannot be replayed: {problem}") from None
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
