"""The command line.  Each command is a few lines around a library function, imported when it is used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from tipprobe import __version__
from tipprobe.errors import ParameterError, TipprobeError

app = typer.Typer(
    help="Reproducible test-time methods for code generation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Look at problem sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")
sandbox_app = typer.Typer(
    help="Look at the sandbox that sampled programs run in, and measure it.", no_args_is_help=True
)
app.add_typer(sandbox_app, name="sandbox")

Overrides = Annotated[
    list[str] | None, typer.Option("-p", metavar="KEY=VALUE", help="Replace one parameter; may be repeated.")
]


def _fail(error: BaseException) -> typer.Exit:
    """Show an error and choose the exit code: 2 for wrong parameters, 1 for the rest."""
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(2 if isinstance(error, ParameterError) else 1)


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def run(
    profile: Annotated[str, typer.Argument(help="A profile's name, or a YAML file.")] = "minicode",
    start: Annotated[str | None, typer.Option("--from", metavar="NN", help="Begin with stage NN.")] = None,
    only: Annotated[str | None, typer.Option("--only", metavar="NN", help="Run stage NN alone.")] = None,
    force: Annotated[bool, typer.Option(help="Run the selected stages again from the start.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run and why.")] = False,
    override: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the results.")] = None,
) -> None:
    """Run the series of notebooks; what is done and intact is skipped."""
    from tipprobe.series.params import parse_overrides
    from tipprobe.series.runner import Options, run_series

    try:
        overrides = parse_overrides(override or [])
        run_series(Options(profile, overrides, out, start, only, force, dry_run))
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from None
    except TipprobeError as error:
        raise _fail(error) from None


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of results, like outputs/minicode.")],
) -> None:
    """Rebuild the HTML report from what is in DIR."""
    from tipprobe.series.report import build_report

    try:
        typer.echo(build_report(folder.absolute()))
    except TipprobeError as error:
        raise _fail(error) from None


@app.command()
def params(
    profile: Annotated[str, typer.Argument(help="A profile's name, or a YAML file.")] = "minicode",
    override: Overrides = None,
) -> None:
    """Show every parameter: value, range, meaning, and the notebooks that use it."""
    from tipprobe.series.params import KEYS, Params, load_params, parse_overrides, range_text
    from tipprobe.series.stages import parameter_use

    try:
        values = load_params(profile, parse_overrides(override or []))
        use = parameter_use()
    except TipprobeError as error:
        raise _fail(error) from None
    for key in KEYS:
        where = " ".join(use.get(key, ())) or "-"
        typer.echo(f"{key} = {json.dumps(getattr(values, key))}")
        typer.echo(f"    {Params.model_fields[key].description}  [{range_text(key)}; notebooks {where}]")


@app.command(name="grade")
def grade_samples(
    problems: Annotated[str, typer.Argument(metavar="PROBLEMS", help="A file, minicode:SPLIT, or a hub id.")],
    samples: Annotated[
        Path,
        typer.Argument(
            metavar="SAMPLES",
            help='JSONL of {"task_id", "completion"} or {"task_id", "program"}, also gzipped; - for stdin.',
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the results.")],
    mode: Annotated[
        str, typer.Option(help="Whose comparison: strict, livecodebench, codecontests, taco, evalplus.")
    ] = "strict",
    k: Annotated[list[int] | None, typer.Option("-k", help="k of pass@k; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first problems that SAMPLES names.")] = None,
    time_limit_s: Annotated[
        float,
        typer.Option(
            envvar="TIPPROBE_TIME_LIMIT_S", help="CPU seconds of a run, where the problem allows no more."
        ),
    ] = 2.0,
    memory_mb: Annotated[int, typer.Option(help="Memory of a run, MiB.")] = 2048,
    workers: Annotated[int, typer.Option(help="Worker processes; 0 for one per core.")] = 0,
    force: Annotated[bool, typer.Option(help="Replace the results that DIR has.")] = False,
) -> None:
    """Grade somebody else's generations; a grading that was stopped goes on from there."""
    from tipprobe.evaluation.generations import GradeJob, grade_generations
    from tipprobe.evaluation.generations_summary import headline
    from tipprobe.evaluation.samples import keep_stream
    from tipprobe.sandbox.compare import check_mode
    from tipprobe.series.progress import Progress

    again = "the same command goes on from here"
    try:
        if str(samples) == "-":
            check_mode(mode)
            samples = keep_stream(sys.stdin.buffer, out, force=force)
            again = f"to go on from here, give {samples} instead of -"
            typer.echo(f"the samples are kept in {samples}; {again}", err=True)
        job = GradeJob(
            problems=problems,
            samples=samples,
            out=out,
            mode=mode,
            ks=tuple(k or (1,)),
            limit=limit,
            time_limit_s=time_limit_s,
            memory_mb=memory_mb,
            workers=workers,
            force=force,
        )
        with Progress(None, "samples", sys.stderr) as progress:
            summary = grade_generations(job, progress, progress.note)
    except KeyboardInterrupt:
        typer.echo(f"stopped; {again}", err=True)
        raise typer.Exit(130) from None
    except TipprobeError as error:
        raise _fail(error) from None
    typer.echo(headline(summary))
    typer.echo(out / "index.html")


@data_app.command()
def describe(
    spec: Annotated[str, typer.Argument(help="minicode:SPLIT, a file, or a hub id.")],
) -> None:
    """Load a problem set and show its schema, counts and one example."""
    from tipprobe.problems.load import describe as describe_problems

    try:
        typer.echo(json.dumps(describe_problems(spec), indent=1, ensure_ascii=False))
    except TipprobeError as error:
        raise _fail(error) from None


MinIsolation = Annotated[
    str | None,
    typer.Option(
        "--min",
        metavar="LEVEL",
        help="Fail below this level: process, seccomp, landlock (the default) or namespaces.",
    ),
]
MaxIsolation = Annotated[
    str,
    typer.Option("--max", metavar="LEVEL", help="Highest level to try, to see what another machine gives."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@sandbox_app.command()
def check(
    minimum: MinIsolation = None, maximum: MaxIsolation = "namespaces", as_json: AsJson = False
) -> None:
    """Show what programs were refused here when they tried; exit code 1 below the level of --min."""
    from tipprobe.sandbox import Sandbox
    from tipprobe.sandbox.isolation import check_level, default_min_isolation, require

    try:
        wanted = minimum or default_min_isolation()
        check_level("--min", wanted)
        with Sandbox(1, min_isolation="process", max_isolation=maximum) as sandbox:
            found = sandbox.isolation
        typer.echo(json.dumps(found.to_json(), indent=1) if as_json else found.explain())
        require(found, wanted)
    except TipprobeError as error:
        raise _fail(error) from None


@sandbox_app.command()
def bench(
    workers: Annotated[int, typer.Option(help="Worker processes; 0 for one per core.")] = 0,
    minimum: MinIsolation = None,
    maximum: MaxIsolation = "namespaces",
    quick: Annotated[bool, typer.Option(help="A tenth of the time, with rougher figures.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure executions per second, against a fresh interpreter for each, and the time of a whole step."""
    from tipprobe.sandbox import Sandbox
    from tipprobe.sandbox.bench import STEP_PROGRAMS, run_bench

    def tell(what: str) -> None:
        typer.echo(f"measuring: {what}", err=True)

    try:
        with Sandbox(workers, min_isolation=minimum, max_isolation=maximum) as sandbox:
            seconds, programs = (0.3, STEP_PROGRAMS // 8) if quick else (3.0, STEP_PROGRAMS)
            result = run_bench(sandbox, seconds, programs, tell)
    except TipprobeError as error:
        raise _fail(error) from None
    typer.echo(json.dumps(result.to_json(), indent=1) if as_json else str(result))


if __name__ == "__main__":
    sys.exit(app())
