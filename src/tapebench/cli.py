"""The `tape` command. Each subcommand imports only what it needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    """Who flips: random, flip-ones, greedy, mpc, beam, optimal, bayes, belief-planner; or none to
    watch the rule alone."""
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

        if not self.rule:
            raise ValueError("name at least one rule: --rule 30")
        if self.png is not None:
            check_target(self.png)
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
        from tapebench import references, rollout

        chosen = references.make(self.policy, task, self.split)
        episodes = rollout.rollout(chosen, task, episodes=self.episode + 1, seed=self.seed)
        traced, flips = episodes.trace(0, self.episode)
        if episodes.success[0, self.episode]:
            outcome = f"goal in {len(flips)} steps"
        else:
            outcome = f"distance {episodes.final_distance[0, self.episode]:.2f} at the end"
        title = f"rule {rule}, {self.policy}"
        return draw.Panel(title, f"{about}; {outcome}", traced.tolist(), flips.tolist())


@dataclass(frozen=True)
class Exact:
    """From which tapes can the goal be reached at all, and in how few steps? By exhaustive search.

    Lengths up to 24 need nothing more; up to 32 need the extra `exact`. What was found for the
    zero goal at 32 cells is shipped and read unless --search is given.
    """

    length: int = 16
    """Cells on the ring."""
    horizon: int | None = None
    """Steps at most; by default as many as there are cells."""
    rules: str = "all"
    """all, train or test (of --split), or rules like 0,30,110."""
    split: str = "fps30"
    """Split that train and test refer to."""
    goal: str = "zeros"
    """zeros, or the cells of a tape like 0110..."""
    search: bool = False
    """Search again even where the answer is shipped."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from rich.console import Console
        from rich.table import Table

        from tapebench import exact
        from tapebench.task import make_task

        horizon = self.length if self.horizon is None else self.horizon
        which = parse_rules(self.rules)
        task = make_task(
            length=self.length, horizon=horizon, split=self.split, rules=which, goal=self.goal
        )
        if task.goal is None:
            raise ValueError("the goal must be one tape: use zeros or its cells")
        exact.check_reach(task.length)
        is_shipped = task.length == exact.MAX_LENGTH and horizon <= 32 and task.goal == 0
        if is_shipped and not self.search:
            known = exact.shipped_ceilings(task.length, horizon)
            missing = [rule for rule in task.rules if rule not in known]
            if missing:
                raise ValueError(
                    f"{len(missing)} of these rules are not shipped yet (rule {missing[0]} for "
                    "one): name others, or add --search"
                )
            solved = {rule: known[rule] for rule in task.rules}
        else:
            with progress_bar(f"exact, L = {task.length}", len(task.rules)) as advance:
                solved = exact.reach_all(task.rules, task.length, horizon, task.goal, advance)
        mean = sum(found.solvable for found in solved.values()) / len(solved)
        if self.json:
            document = {
                "length": task.length,
                "horizon": horizon,
                "goal": f"{task.goal:0{task.length}b}"[::-1],
                "mean_ceiling": mean,
                "rules": {str(rule): found.as_dict() for rule, found in solved.items()},
            }
            print(json.dumps(document))
            return
        title = f"Exact reachability, L = {task.length}, H = {horizon}"
        table = Table("rule", "solvable", "worst case (steps)", "mean (steps)", title=title)
        for rule, found in solved.items():
            row = f"{found.solvable:.6f}", str(found.max_steps), f"{found.mean_steps:.3f}"
            table.add_row(str(rule), *row)
        console = Console()
        console.print(table)
        everywhere = sum(found.solvable == 1 for found in solved.values())
        console.print(
            f"mean ceiling over {len(solved)} rules: {mean:.4f}; "
            f"solvable from every tape: {everywhere} rules"
        )


@dataclass(frozen=True)
class Oracle:
    """How far random-shooting MPC with the true rule gets: the budgeted planning reference."""

    split: str = "fps30"
    """Split whose sides are reported."""
    objective: str = "min"
    """What makes a candidate best: its final, summed (sum) or minimum (min) distance."""
    horizon_plan: int = 8
    """Flips per candidate sequence."""
    candidates: int = 512
    """Candidate sequences per step."""
    side: str = "all"
    """id, ood, or all."""
    length: int = 32
    """Cells on the ring."""
    horizon: int | None = None
    """Steps per episode; by default as many as there are cells."""
    episodes_per_rule: int = 20
    """Exam tapes per rule."""
    seeds: int = 5
    """Seeds of the planner's own samples."""
    by_type: bool = False
    """Report by operational type instead, and write --export."""
    export: Path = Path("mpc_by_type_eval.json")
    """Where --by-type writes its figures."""
    sweep: bool = False
    """Vary planning horizon, candidates and objective instead (some minutes)."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench import splits
        from tapebench.references import oracle
        from tapebench.references.mpc import mpc
        from tapebench.task import make_task

        for name in ("episodes_per_rule", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.by_type:
            check_target(self.export)
        split = splits.load(self.split)
        sides = oracle.sides(split, self.side)
        horizon = self.length if self.horizon is None else self.horizon
        task = make_task(
            length=self.length, horizon=horizon, rules=sides.get("all") or sides[self.side]
        )
        head: dict[str, Any] = {
            "split": split.name,
            "side": self.side,
            "length": self.length,
            "horizon": horizon,
            "episodes_per_rule": self.episodes_per_rule,
        }
        if self.sweep:
            self._report_sweep(head, task)
            return
        policy = mpc(task, self.objective, self.horizon_plan, self.candidates)
        head |= {
            "policy": policy.name,
            "objective": self.objective,
            "plan": self.horizon_plan,
            "candidates": self.candidates,
            "seeds": self.seeds,
        }
        with progress_bar("planning, by seed", self.seeds) as advance:
            runs = oracle.run_seeds(policy, task, self.episodes_per_rule, self.seeds, advance)
        if self.by_type:
            document = head | {"by_type": oracle.by_type(runs)}
            write_text(self.export, json.dumps(document, indent=2) + "\n")
            print(f"wrote {self.export}", file=sys.stderr)
            rows: list[tuple[str, ...]] = [
                (kind, f"{row['success']:.3f}", f"{row['mean_return']:.2f}", str(row["episodes"]))
                for kind, row in document["by_type"].items()
            ]
            columns: tuple[str, ...] = ("type", "strict success", "mean return", "episodes")
        else:
            summaries = {side: oracle.summarise(runs, members) for side, members in sides.items()}
            document = head | summaries
            rows = [
                (
                    side,
                    name,
                    f"{found['mean']:.3f}",
                    _ends(found["seeds"]),
                    _ends(found["rules_tapes"]),
                )
                for side, summary in summaries.items()
                for name, found in summary.items()
                if isinstance(found, dict)
            ]
            columns = ("side", "metric", "mean", "95% over seeds", "95% over rules and tapes")
        report(
            document,
            self.json,
            f"{policy.name}, plan {self.horizon_plan}, "
            f"{self.candidates} candidates, L = {self.length}, H = {horizon}",
            columns,
            rows,
        )

    def _report_sweep(self, head: dict[str, Any], task: Any) -> None:
        from tapebench.references import oracle
        from tapebench.references.mpc import OBJECTIVES

        combinations = len(OBJECTIVES) * len(oracle.SWEEP_PLANS) * len(oracle.SWEEP_CANDIDATES)
        found = []
        with progress_bar("sweep", combinations) as advance:
            for point in oracle.sweep(task, self.episodes_per_rule):
                found.append(point)
                advance(point)
        rows = [
            (
                p["objective"],
                str(p["plan"]),
                str(p["candidates"]),
                f"{p['success']:.3f}",
                f"{p['final_distance']:.3f}",
            )
            for p in found
        ]
        columns = ("objective", "plan", "candidates", "strict success", "final distance")
        report(head | {"sweep": found}, self.json, "Planner sensitivity", columns, rows)


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
    held_out: int | None = None
    """Number of held-out rules; by default 30."""
    out: Path | None = None
    """Write to this file instead of standard output."""

    def run(self) -> None:
        from tapebench import splits

        if self.out is not None:
            check_target(self.out)
        if self.generator is None:
            if self.seed is not None or self.held_out is not None:
                raise ValueError("--seed and --held-out need --generator: a shipped split is fixed")
            split = splits.make(self.name)
        elif self.name in splits.names():
            raise ValueError(f"{self.name} is a shipped split: choose another name")
        else:
            held_out = splits.HELD_OUT if self.held_out is None else self.held_out
            split = splits.generate(self.name, self.generator, self.seed, held_out)
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
        from rich.markup import escape
        from rich.table import Table

        from tapebench import rules, splits

        audit = splits.audit(splits.load(self.name))
        if self.json:
            print(json.dumps(audit.as_dict(), indent=2))
            return
        title = f"Audit of {escape(audit.split.name)}"
        table = Table("", "train", "held out", title=title)
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
    Annotated[Exact, tyro.conf.subcommand("exact")]
    | Annotated[Oracle, tyro.conf.subcommand("oracle")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Splits, tyro.conf.subcommand("splits")]
)


def report(
    document: dict[str, Any],
    as_json: bool,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> None:
    """Print figures as one JSON document or as a table."""
    from rich.console import Console
    from rich.table import Table

    if as_json:
        print(json.dumps(document))
        return
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _ends(interval: Sequence[float]) -> str:
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def parse_rules(text: str) -> str | list[int]:
    """`all`, `train` and `test` as they are; else rules separated by commas."""
    if text in ("all", "train", "test"):
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"unknown rules {text!r}: use all, train, test, or rules like 0,30,110"
        ) from None


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[Any], None]]:
    """A bar with an estimate on standard error; yields what to call when one part is done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        part = bar.add_task(title, total=total)
        yield lambda _: bar.advance(part)


def write_text(path: Path, text: str) -> None:
    """Write aside, then rename: the file is either the old one or the whole new one."""
    aside = path.with_name(path.name + ".partial")
    try:
        aside.write_text(text)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ValueError(f"cannot write {path}: {error.strerror}") from None


def check_target(path: Path) -> None:
    """Refuse a place that cannot be written to before any work is done for it."""
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a directory")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no directory {path.parent}")


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
        print(f"tape: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
