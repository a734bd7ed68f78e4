"""The `tape` command. Each subcommand imports only what it needs."""

from __future__ import annotations

import sys
from functools import reduce
from operator import or_
from typing import Annotated, Any

import tyro

from tapebench import __version__
from tapebench.cli.bayes import Bayes
from tapebench.cli.bench import Bench
from tapebench.cli.board import Board
from tapebench.cli.console import error_line
from tapebench.cli.data import Data
from tapebench.cli.evaluate import Compare, Evaluate, Verify
from tapebench.cli.physics import Exact, Oracle, Show
from tapebench.cli.play import Play
from tapebench.cli.query import Power, Query
from tapebench.cli.report import Report
from tapebench.cli.reproduce import Reproduce
from tapebench.cli.splits import Splits
from tapebench.cli.train import Train
from tapebench.cli.unseen import Unseen

COMMANDS = {
    "bayes": Bayes,
    "bench": Bench,
    "board": Board,
    "compare": Compare,
    "data": Data,
    "evaluate": Evaluate,
    "exact": Exact,
    "oracle": Oracle,
    "play": Play,
    "power": Power,
    "query": Query,
    "report": Report,
    "reproduce": Reproduce,
    "show": Show,
    "splits": Splits,
    "train": Train,
    "unseen": Unseen,
    "verify": Verify,
}


def _any_command(is_overview: bool) -> Any:
    """The union of all commands; an overview shows the first sentences of their help alone."""
    commands = []
    for name, command in COMMANDS.items():
        summary = (command.__doc__ or "").split("\n\n")[0] if is_overview else None
        commands.append(Annotated[command, tyro.conf.subcommand(name, description=summary)])
    return reduce(or_, commands)


def main(argv: list[str] | None = None) -> None:
    """Run the command line. Bad input ends in one line on standard error and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    if argv == ["--version"]:
        print(f"tapebench {__version__}")
        return
    command = tyro.cli(
        _any_command(is_overview=not argv or argv[0].startswith("-")),
        prog="tape",
        args=argv,
        description="TAPE: does an agent generalise to rules it has never seen?",
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
        print(f"tape: {error_line(error)}", file=sys.stderr)
        raise SystemExit(2) from None
