"""The `tape` command. Each subcommand imports only what it needs."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro

from tapebench import __version__
from tapebench.cli.bayes import Bayes
from tapebench.cli.bench import Bench
from tapebench.cli.console import in_a_line
from tapebench.cli.evaluate import Compare, Evaluate, Unseen, Verify
from tapebench.cli.physics import Exact, Oracle, Show
from tapebench.cli.play import Play
from tapebench.cli.query import Power, Query
from tapebench.cli.report import Report
from tapebench.cli.reproduce import Reproduce
from tapebench.cli.splits import Splits
from tapebench.cli.train import Train

Command = (
    Annotated[Bayes, tyro.conf.subcommand("bayes")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Exact, tyro.conf.subcommand("exact")]
    | Annotated[Oracle, tyro.conf.subcommand("oracle")]
    | Annotated[Play, tyro.conf.subcommand("play")]
    | Annotated[Power, tyro.conf.subcommand("power")]
    | Annotated[Query, tyro.conf.subcommand("query")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Splits, tyro.conf.subcommand("splits")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Unseen, tyro.conf.subcommand("unseen")]
    | Annotated[Verify, tyro.conf.subcommand("verify")]
)


def main(argv: list[str] | None = None) -> None:
    """Run the command line. Bad input ends in one line on standard error and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    if argv == ["--version"]:
        print(f"tapebench {__version__}")
        return
    command = tyro.cli(
        Command,
        prog="tape",
        args=argv,
        description="TAPE: does an agent generalise to laws it has never seen?",
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    if isinstance(command, Bench) and any(word.split("=")[0] == "--out" for word in argv):
        print("tape: --out of bench is now called --results", file=sys.stderr)
    try:
        command.run()
    except (ValueError, OverflowError) as error:
        print(f"tape: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except MemoryError:
        print("tape: not enough memory: choose a shorter tape or fewer rules", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("tape: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None
    except OSError as error:
        print(f"tape: {in_a_line(error)}", file=sys.stderr)
        raise SystemExit(2) from None
