"""The `tape` command. Each subcommand is imported when it is asked for."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import Any

GROUPS = {
    "start here": {
        "play": "play:Play",
        "show": "physics:Show",
        "evaluate": "evaluate:Evaluate",
        "report": "report:Report",
    },
    "run": {
        "train": "train:Train",
        "bench": "bench:Bench",
        "reproduce": "reproduce:Reproduce",
    },
    "analyse": {
        "compare": "evaluate:Compare",
        "unseen": "unseen:Unseen",
        "bayes": "bayes:Bayes",
        "power": "query:Power",
        "query": "query:Query",
        "verify": "evaluate:Verify",
        "board": "board:Board",
    },
    "rules": {
        "exact": "physics:Exact",
        "oracle": "physics:Oracle",
        "splits": "splits:Splits",
    },
    "data": {
        "data": "data:Data",
    },
}
"""Every command, by what it is for, as module:class of this folder."""

COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}

RENAMED = {
    "bench": {"--out": "--results"},
    "oracle": {"--episodes-per-rule": "--episodes"},
    "report": {"--tracks": "--track"},
    "show": {"--rule": "--rules"},
}
"""Older names of options, by command. They work, with a warning, and are not in the help."""

WIDTH = 80
"""Columns of the overview."""

TOUR = """\
TAPE: does an agent generalise to rules it has never seen?

Each step the agent flips one cell of a tape, then a hidden rule updates every
cell. The goal is a tape of zeros. Some rules are trained on, others held out.

  tape play --browser                    play it yourself, the rule is hidden
  tape show --rules 30 --policy optimal  watch chaos brought to zero
  tape evaluate flip-ones                a score beside baselines and ceilings
  tape train dqn --track smoke           train an agent, half a minute
  tape report --published                the page of all published results

tape --help lists all commands, and tape COMMAND --help explains one."""


def load(name: str) -> Any:
    """The class of a command."""
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(import_module(f"tapebench.cli.{module}"), attribute)


def overview() -> str:
    """All commands in their groups, with the first paragraph of their help."""
    lines = ["usage: tape COMMAND [OPTIONS]", "", TOUR.splitlines()[0]]
    for title, group in GROUPS.items():
        lines += ["", title]
        for name in group:
            summary = " ".join(load(name).__doc__.split("\n\n")[0].split())
            indent = " " * 13
            text = textwrap.fill(summary, WIDTH, initial_indent=indent, subsequent_indent=indent)
            lines.append(f"  {name:<11}{text.lstrip()}")
    return "\n".join([*lines, "", "tape COMMAND --help explains one, tape --version the version"])


def rename_options(command: str, argv: Sequence[str]) -> list[str]:
    """The arguments with the present names of options, and a warning for each older one."""
    words = []
    for number, word in enumerate(argv):
        name, equals, value = word.partition("=")
        is_option = "--" not in argv[:number]
        if is_option and (now := RENAMED.get(command, {}).get(name)):
            print(f"tape: {name} of {command} is now called {now}", file=sys.stderr)
            name = now
        words.append(name + equals + value)
    return words


def parse(argv: Sequence[str]) -> Any:
    """The command that these arguments ask for, ready to run."""
    import tyro

    from tapebench.base.names import one_of
    from tapebench.cli.console import hide_idle_defaults

    name, *rest = argv
    one_of("command", name, COMMANDS)
    command = load(name)
    hide_idle_defaults(command)
    return tyro.cli(
        command,
        prog=f"tape {name}",
        args=rename_options(name, rest),
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )


def version() -> str:
    """The version of the package and the git revision of its source."""
    from tapebench import __version__
    from tapebench.base import files

    revision = files.revision()
    return f"tapebench {__version__}" + (f" ({revision})" if revision else "")


def main(argv: list[str] | None = None) -> None:
    """Run the command line. Bad input ends in one line on standard error and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        match argv:
            case []:
                print(TOUR)
            case ["--help" | "-h" | "help"]:
                print(overview())
            case ["--version"]:
                print(version())
            case _:
                parse(argv).run()
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
        from tapebench.cli.console import error_line

        print(f"tape: {error_line(error)}", file=sys.stderr)
        raise SystemExit(2) from None
