"""`tape splits list|show|make|audit`."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tapebench.cli.console import check_target, make_table, screen

if TYPE_CHECKING:
    from tapebench.tasks.splits import Audit, DrawnAudit


@dataclass(frozen=True)
class SplitsList:
    """List the named splits.

    For example:
      tape splits list
      tape splits list --family ring2
    """

    family: Annotated[str, tyro.conf.arg(metavar="FAMILY")] = "elementary"
    """Whose rules they are of: elementary, ring2 or life."""

    def run(self) -> None:
        from tapebench.physics import families
        from tapebench.tasks import splits, universe

        if families.get(self.family) != universe.ELEMENTARY.family:
            self._list_drawn()
            return
        table = make_table(
            "split", "generator", "train", "held out", "stable / periodic / chaotic", "clean"
        )
        for name in splits.names():
            audit = splits.audit_elementary(splits.load(name))
            split, types = audit.split, audit.types["test"]
            table.add_row(
                name,
                split.generator + ("" if split.seed is None else f", seed {split.seed}"),
                str(len(split.train)),
                str(len(split.test)),
                " / ".join(str(count) for count in types.values()),
                "yes" if audit.is_clean else "no",
            )
        screen().print(table)

    def _list_drawn(self) -> None:
        from tapebench.tasks import splits

        table = make_table("split", "steps", "train", "held out", "worst case, mean", "clean")
        for name in splits.all_names():
            if not name.startswith(f"{self.family}-"):
                continue
            audit = splits.audit_drawn(splits.load(name))
            table.add_row(
                name,
                str(audit.split.universe.horizon),
                str(len(audit.split.train)),
                str(len(audit.split.test)),
                " / ".join(f"{mean:.2f}" for mean in audit.means["worst case"]),
                "yes" if audit.is_clean else "no",
            )
        screen().print(table)


@dataclass(frozen=True)
class SplitsShow:
    """Show the rules of a split.

    For example:
      tape splits show life-H8-matched-16
      tape splits show my_split.json --json
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[SPLIT]")] = "fps30"
    """A named split, or the path of a split file."""
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
        label = split.universe.family.label
        print(f"train ({len(split.train)}): {' '.join(map(label, split.train))}")
        print(f"test ({len(split.test)}): {' '.join(map(label, split.test))}")


@dataclass(frozen=True)
class SplitsMake:
    """Compute a split: a named one again, or a new one of elementary rules by --generator.

    For example:
      tape splits make fps30
      tape splits make mine --generator random --seed 7 --out mine.json
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SPLIT")]
    """A named split, or a name for the new one."""
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
            if self.name not in splits.all_names():
                raise ValueError(
                    f"unknown split {self.name!r}: shipped are {', '.join(splits.names())}, and a "
                    f"new one needs --generator: tape splits make {shlex.quote(self.name)} "
                    "--generator matched"
                )
            split = splits.make(self.name)
        elif self.name in splits.all_names():
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
      tape splits audit ring2-H8-matched --json
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[SPLIT]")] = "fps30"
    """A named split, or the path of a split file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.tasks import splits

        audit = splits.audit(splits.load(self.name))
        if self.json:
            print(json.dumps(audit.as_dict(), indent=2))
        elif isinstance(audit, splits.DrawnAudit):
            self._print_drawn(audit)
        else:
            self._print_elementary(audit)

    def _print_elementary(self, audit: Audit) -> None:
        from tapebench.physics import features
        from tapebench.physics.strata import SAMPLE_TAPES
        from tapebench.tasks import folds, splits

        title = f"Audit of {audit.split.name}"
        table = make_table("", "train", "held out", title=title)
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
        print_verdict(audit)
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

    def _print_drawn(self, audit: DrawnAudit) -> None:
        split, universe = audit.split, audit.split.universe
        table = make_table("", "train", "held out", title=f"Audit of {split.name}")
        table.add_row("rules", str(len(split.train)), str(len(split.test)))
        for name, count in audit.strata["train"].items():
            table.add_row(name, str(count), str(audit.strata["test"][name]))
        for name, (train, test) in audit.means.items():
            table.add_row(f"mean {name}", f"{train:.4f}", f"{test:.4f}")
        console = screen()
        print_verdict(audit)
        console.print(table)
        shape = "x".join(map(str, universe.space.shape))
        console.print(
            f"{universe.name}: {len(universe.rules):,} rules on {shape} cells, each solved from "
            f"every tape within {universe.horizon} steps; {audit.unassigned} are on neither side",
            highlight=False,
        )
        cut = len(audit.images_cut)
        console.print(f"rules held out that are images of one trained on: {cut}", highlight=False)
        gap = f"shares of strata are within {audit.stratum_gap:.2f} rules of each other"
        console.print(gap, highlight=False)


def print_verdict(audit: Audit | DrawnAudit) -> None:
    """Whether the split is clean, and what a drop on it can mean."""
    from tapebench.tasks import folds

    objections = "; ".join(audit.objections)
    if audit.split.generator in folds.GENERATORS:
        meaning = (
            "Folds are read together: the cost of unseen compares each rule with itself, and "
            "differences between the sides do not enter it."
        )
    elif objections:
        meaning = (
            "Part of a drop from ID to OOD on this split comes from these differences, not from "
            "generalisation: compare shares of the ceiling, or use tape unseen."
        )
    else:
        meaning = (
            "The sides are alike in all that is checked here, so a drop can be taken at its word."
        )
    console = screen()
    console.print(f"clean: {f'no ({objections})' if objections else 'yes'}", highlight=False)
    console.print(meaning, highlight=False)


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
