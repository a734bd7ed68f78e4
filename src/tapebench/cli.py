"""The `tape` command. Each subcommand imports only what it needs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tapebench import __version__


@dataclass(frozen=True)
class Show:
    """Draw an episode as a space-time diagram: time runs down, flips are marked."""

    rule: Annotated[tuple[int, ...], tyro.conf.arg(metavar="RULE [RULE ...]")] = (30,)
    """Rules to draw, side by side."""
    policy: str = "random"
    """Who flips: random, flip-ones, greedy, or none to watch the rule alone."""
    length: int = 32
    """Cells on the ring."""
    horizon: int = 32
    """Steps at most."""
    episode: int = 0
    """Which of the exam's start tapes."""
    seed: int = 0
    """Seed of the policy's own draws."""
    split: str = "fps30"
    """Split that says which rules are held out."""
    png: Path | None = None
    """Write the diagram to this file as a picture instead."""

    def run(self) -> None:
        from tapebench import draw

        panels = [self._panel(rule) for rule in self.rule]
        if self.png is not None:
            draw.save_png(panels, self.png)
            print(f"wrote {self.png}", file=sys.stderr)
        else:
            draw.print_panels(panels)

    def _panel(self, rule: int) -> Any:
        from tapebench import draw, dynamics, rules, seeding, splits
        from tapebench.task import make_task

        if self.episode < 0:
            raise ValueError(f"episode must be 0 or more, not {self.episode}")
        dynamics.check_rule(rule)
        held_out = rule in splits.load(self.split).test
        about = f"{rules.table()[rule].type}, {'held out' if held_out else 'seen in training'}"
        task = make_task(length=self.length, horizon=self.horizon, rules=rule)
        if self.policy == "none":
            words = seeding.exam_tapes(self.length, self.episode + 1)[self.episode]
            tape = dynamics.to_int(words)
            tapes = [tape]
            for _ in range(self.horizon):
                tapes.append(dynamics.evolve(tapes[-1], rule, self.length))
            cells = [[(tape >> cell) & 1 for cell in range(self.length)] for tape in tapes]
            return draw.Panel(f"rule {rule}", f"{about}; no flips", cells, [])
        from tapebench import policy, rollout

        chosen = policy.make(self.policy, task)
        episodes = rollout.rollout(chosen, task, episodes=self.episode + 1, seed=self.seed)
        traced, flips = episodes.trace(0, self.episode)
        if episodes.success[0, self.episode]:
            outcome = f"goal in {len(flips)} steps"
        else:
            outcome = f"distance {episodes.final_distance[0, self.episode]:.2f} at the end"
        title = f"rule {rule}, {self.policy}"
        return draw.Panel(title, f"{about}; {outcome}", traced.tolist(), flips.tolist())


@dataclass(frozen=True)
class SplitsList:
    """List the shipped splits."""

    def run(self) -> None:
        from rich.console import Console
        from rich.table import Table

        from tapebench import splits

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
        Console().print(table)


@dataclass(frozen=True)
class SplitsShow:
    """Show the rules of a split."""

    name: tyro.conf.Positional[str] = "fps30"
    """A shipped split, or the path of a split file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench import splits

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
    """Compute a split: a shipped one again, or a new one by --generator."""

    name: tyro.conf.Positional[str]
    """A shipped split's name, or a name for the new one."""
    generator: str | None = None
    """fps (farthest points in feature space), matched, or random."""
    seed: int | None = None
    """Seed of the choice. fps without one starts from the rule farthest from the mean."""
    held_out: int = 30
    """Number of held-out rules."""
    out: Path | None = None
    """Write to this file instead of standard output."""

    def run(self) -> None:
        from tapebench import splits

        if self.generator is None:
            split = splits.make(self.name)
        else:
            split = splits.generate(self.name, self.generator, self.seed, self.held_out)
        if self.out is None:
            print(splits.dump(split), end="")
        else:
            write_text(self.out, splits.dump(split))
            print(f"wrote {self.out}", file=sys.stderr)


@dataclass(frozen=True)
class SplitsAudit:
    """Check a split for leaks and for differences that are not about generalisation."""

    name: tyro.conf.Positional[str] = "fps30"
    """A shipped split, or the path of a split file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from rich.console import Console
        from rich.table import Table

        from tapebench import rules, splits

        audit = splits.audit(splits.load(self.name))
        if self.json:
            print(json.dumps(audit.as_dict(), indent=2))
            return
        table = Table("", "train", "held out", title=f"Audit of {audit.split.name}")
        table.add_row("rules", str(len(audit.split.train)), str(len(audit.split.test)))
        for name in rules.TYPES:
            table.add_row(name, str(audit.types["train"][name]), str(audit.types["test"][name]))
        for name, (train, test) in audit.difficulty.items():
            table.add_row(f"mean {name}", f"{train:.4f}", f"{test:.4f}")
        console = Console()
        console.print(table)
        pairs = " ".join(f"{a}|{b}" for a, b in audit.mirror_pairs_cut) or "none"
        console.print(f"mirror pairs cut by the split ({len(audit.mirror_pairs_cut)}): {pairs}")
        console.print(f"sides disjoint: {'yes' if audit.disjoint else 'no'}")
        console.print(f"clean: {'yes' if audit.is_clean else 'no'}")


@dataclass(frozen=True)
class Splits:
    """List, show, make and audit splits of the rules."""

    command: tyro.conf.OmitSubcommandPrefixes[
        Annotated[SplitsList, tyro.conf.subcommand("list")]
        | Annotated[SplitsShow, tyro.conf.subcommand("show")]
        | Annotated[SplitsMake, tyro.conf.subcommand("make")]
        | Annotated[SplitsAudit, tyro.conf.subcommand("audit")]
    ]

    def run(self) -> None:
        self.command.run()


Command = (
    Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Splits, tyro.conf.subcommand("splits")]
)


def write_text(path: Path, text: str) -> None:
    """Write aside, then rename: the file is either the old one or the whole new one."""
    aside = path.with_name(path.name + ".partial")
    try:
        aside.write_text(text)
        aside.replace(path)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None


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
    try:
        command.run()
    except ValueError as error:
        print(f"tape: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("tape: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None
