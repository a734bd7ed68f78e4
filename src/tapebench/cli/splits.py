"""`tape splits list|show|make|audit`."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tapebench.cli.console import check_target, screen


@dataclass(frozen=True)
class SplitsList:
    """List the shipped splits.

    For example:
      tape splits list
      tape splits list | grep folds
    """

    def run(self) -> None:
        from rich.table import Table

        from tapebench.tasks import splits

        table = Table("split", "generator", "train", "held out", "stable/periodic/chaotic", "clean")
        for name in splits.names():
            audit = splits.audit(splits.load(name))
            split, types = audit.split, audit.types["test"]
            table.add_row(
                name,
                split.generator + ("" if split.seed is None else f", seed {split.seed}"),
                str(len(split.train)),
                str(len(split.test)),
                "/".join(str(count) for count in types.values()),
                "yes" if audit.is_clean else "no",
            )
        screen().print(table)


@dataclass(frozen=True)
class SplitsShow:
    """Show the rules of a split.

    For example:
      tape splits show matched30
      tape splits show my_split.json --json
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[SPLIT]")] = "fps30"
    """A shipped split, or the path of a split file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.tasks import splits

        split = splits.load(self.name)
        if self.json:
            print(splits.dump(split), end="")
            return
        origin = split.generator + ("" if split.seed is None else f", seed {split.seed}")
        print(f"{split.name} ({origin}), hash {split.hash}")
        print(f"train ({len(split.train)}): {' '.join(map(str, split.train))}")
        print(f"test ({len(split.test)}): {' '.join(map(str, split.test))}")


@dataclass(frozen=True)
class SplitsMake:
    """Compute a split: a shipped one again, or a new one by --generator.

    For example:
      tape splits make fps30
      tape splits make mine --generator random --seed 7 --out mine.json
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SPLIT")]
    """A shipped split's name, or a name for the new one."""
    generator: Annotated[str | None, tyro.conf.arg(metavar="GENERATOR")] = None
    """fps (farthest points in feature space), matched, or random."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="SEED")] = None
    """Seed of the choice. fps without one starts from the rule farthest from the mean."""
    held_out: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of held-out rules; by default 30."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write to this file instead of standard output."""

    def run(self) -> None:
        from tapebench.base import files
        from tapebench.tasks import splits

        if self.out is not None:
            check_target(self.out)
        if self.generator is None:
            if self.seed is not None or self.held_out is not None:
                raise ValueError("--seed and --held-out need --generator: a shipped split is fixed")
            if self.name not in splits.names():
                raise ValueError(
                    f"unknown split {self.name!r}: shipped are {', '.join(splits.names())}, and a "
                    f"new one needs --generator: tape splits make {shlex.quote(self.name)} "
                    "--generator matched"
                )
            split = splits.make(self.name)
        elif self.name in splits.names():
            raise ValueError(f"{self.name} is a shipped split: choose another name")
        else:
            held_out = splits.HELD_OUT if self.held_out is None else self.held_out
            split = splits.generate(self.name, self.generator, self.seed, held_out)
        if self.out is None:
            print(splits.dump(split), end="")
        else:
            files.write_text(self.out, splits.dump(split))
            print(f"wrote {self.out}", file=sys.stderr)


@dataclass(frozen=True)
class SplitsAudit:
    """Check a split for leaks and for differences that are not about generalisation.

    For example:
      tape splits audit fps30
      tape splits audit my_split.json --json
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[SPLIT]")] = "fps30"
    """A shipped split, or the path of a split file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from rich.table import Table

        from tapebench.physics import features
        from tapebench.physics.strata import SAMPLE_TAPES
        from tapebench.tasks import folds, splits

        audit = splits.audit(splits.load(self.name))
        if self.json:
            print(json.dumps(audit.as_dict(), indent=2))
            return
        title = f"Audit of {audit.split.name}"
        table = Table("", "train", "held out", title=title)
        table.add_row("rules", str(len(audit.split.train)), str(len(audit.split.test)))
        for name in features.TYPES:
            table.add_row(name, str(audit.types["train"][name]), str(audit.types["test"][name]))
        for strata, (length, horizon) in (
            (audit.strata, (folds.LENGTH, folds.HORIZON)),
            (audit.strata_of_exam, splits.EXAM_SIZE),
        ):
            for name, count in strata["train"].items():
                label = f"{name} L{length} H{horizon}"
                table.add_row(label, str(count), str(strata["test"][name]))
        for name, (train, test) in audit.difficulty.items():
            table.add_row(f"mean {name}", f"{train:.4f}", f"{test:.4f}")
        console = screen()
        console.print(table)
        length, horizon = splits.EXAM_SIZE
        close = " ".join(map(str, audit.close)) or "none"
        console.print(
            f"strata at L{length} H{horizon} are from exact ceilings and a sample of what flipping "
            f"ones reaches ({SAMPLE_TAPES:,} start tapes a rule); rules within two standard errors "
            f"of the threshold: {close}",
            highlight=False,
        )
        pairs = " ".join(f"{a}|{b}" for a, b in audit.mirror_pairs_cut) or "none"
        console.print(f"mirror pairs cut by the split ({len(audit.mirror_pairs_cut)}): {pairs}")
        console.print(f"sides disjoint: {'yes' if audit.disjoint else 'no'}")
        objections = "; ".join(audit.objections)
        console.print(f"clean: {f'no ({objections})' if objections else 'yes'}", highlight=False)
        if audit.split.generator in folds.GENERATORS:
            console.print(
                "folds are read together: the cost of unseen compares each rule with itself, and "
                "what the sides differ in does not enter it",
                highlight=False,
            )


@dataclass(frozen=True)
class Splits:
    """List, show, make and audit splits of the rules.

    For example:
      tape splits list
      tape splits audit fps30
    """

    command: tyro.conf.OmitSubcommandPrefixes[
        Annotated[SplitsList, tyro.conf.subcommand("list")]
        | Annotated[SplitsShow, tyro.conf.subcommand("show")]
        | Annotated[SplitsMake, tyro.conf.subcommand("make")]
        | Annotated[SplitsAudit, tyro.conf.subcommand("audit")]
    ]

    def run(self) -> None:
        self.command.run()
