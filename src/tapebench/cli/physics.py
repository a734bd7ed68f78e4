"""`tape show|exact|oracle`: the laws themselves, what is possible and what planning reaches."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.cli.console import check_target, ends, parse_rules, progress_bar, report, screen

if TYPE_CHECKING:
    from tapebench.tasks.task import Task


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
        from tapebench.tasks import render

        if not self.rule:
            raise ValueError("name at least one rule: --rule 30")
        if self.png is not None:
            check_target(self.png)
        panels = [self._panel(rule) for rule in self.rule]
        if self.png is not None:
            from tapebench.base import files
            from tapebench.report.figures import spacetimes

            drawn = spacetimes(panels, across=len(panels), side=4.2, legend=True)
            files.write_bytes(self.png, drawn.render("png"))
            print(f"wrote {self.png}", file=sys.stderr)
        else:
            render.print_panels(panels)

    def _panel(self, rule: int) -> Any:
        from tapebench.physics import space, starts
        from tapebench.tasks import render, splits
        from tapebench.tasks.task import make_task

        if self.episode < 0:
            raise ValueError(f"episode must be 0 or more, not {self.episode}")
        split = splits.load(self.split)
        kind = split.universe.features[split.universe.family.check_rule(rule)].type
        about = f"{kind}, {'held out' if rule in split.test else 'seen in training'}"
        task = make_task(length=self.length, horizon=self.horizon, rules=rule)
        if self.policy == "none":
            words = starts.exam_tapes(self.length, self.episode + 1)[self.episode]
            tape = space.to_int(words)
            tapes = [tape]
            for _ in range(self.horizon):
                tapes.append(task.family.evolve(tapes[-1], rule, task.space))
            cells = [[(tape >> cell) & 1 for cell in range(self.length)] for tape in tapes]
            return render.Panel(f"rule {rule}", f"{about}; no flips", cells, [])
        from tapebench.exam import policy as policies
        from tapebench.exam import rollout

        chosen = policies.make(self.policy, task, self.split)
        episodes = rollout.rollout(chosen, task, episodes=self.episode + 1, seed=self.seed)
        traced, flips = episodes.trace(0, self.episode)
        if episodes.success[0, self.episode]:
            outcome = f"goal in {len(flips)} steps"
        else:
            outcome = f"distance {episodes.final_distance[0, self.episode]:.2f} at the end"
        title = f"rule {rule}, {self.policy}"
        return render.Panel(title, f"{about}; {outcome}", traced.tolist(), flips.tolist())


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
    noise: float = 0.0
    """Each cell flips with this probability after the update: the best chance of success then, for
    who knows the rule, up to 20 cells."""
    search: bool = False
    """Search again even where the answer is shipped."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from rich.table import Table

        from tapebench.physics import exact
        from tapebench.tasks.task import make_task

        horizon = self.length if self.horizon is None else self.horizon
        which = parse_rules(self.rules)
        task = make_task(
            length=self.length,
            horizon=horizon,
            split=self.split,
            rules=which,
            goal=self.goal,
            noise=self.noise,
        )
        if task.goal is None:
            raise ValueError("the goal must be one tape: use zeros or its cells")
        if task.noise:
            self._print_noisy(task)
            return
        exact.check_reach(task.length)
        is_shipped = task.length == exact.MAX_LENGTH and horizon <= 32 and task.goal == 0
        if is_shipped and not self.search:
            known = exact.shipped_ceilings(task.length, horizon)
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
        console = screen()
        console.print(table)
        everywhere = sum(found.solvable == 1 for found in solved.values())
        console.print(
            f"mean ceiling over {len(solved)} rules: {mean:.4f}; "
            f"solvable from every tape: {everywhere} rules"
        )

    def _print_noisy(self, task: Task) -> None:
        from rich.table import Table

        from tapebench.physics import exact

        exact.check_reach(task.length, exact.NOISE_LENGTH)
        with progress_bar(f"exact under noise, L = {task.length}", len(task.rules)) as advance:
            found = exact.noisy_ceilings(
                task.rules, task.length, task.horizon, task.noise, task.goal or 0, advance
            )
        mean = sum(found.values()) / len(found)
        if self.json:
            document = {
                "length": task.length,
                "horizon": task.horizon,
                "goal": f"{task.goal:0{task.length}b}"[::-1],
                "noise": task.noise,
                "mean_ceiling": mean,
                "rules": {str(rule): {"ceiling": ceiling} for rule, ceiling in found.items()},
            }
            print(json.dumps(document))
            return
        title = f"Best success with the rule known, L = {task.length}, H = {task.horizon}"
        table = Table("rule", f"noise {task.noise:g}", title=title)
        for rule, ceiling in found.items():
            table.add_row(str(rule), f"{ceiling:.6f}")
        console = screen()
        console.print(table)
        console.print(f"mean ceiling over {len(found)} rules: {mean:.4f}")


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
        from tapebench.base import files
        from tapebench.exam import score
        from tapebench.planning.mpc import mpc
        from tapebench.tasks import splits
        from tapebench.tasks.task import make_task

        for name in ("episodes_per_rule", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.by_type:
            check_target(self.export)
        split = splits.load(self.split)
        sides = splits.sides(split, self.side)
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
            runs = score.run_seeds(policy, task, self.episodes_per_rule, self.seeds, advance)
        if self.by_type:
            document = head | {"by_type": score.by_type(runs)}
            files.write_text(self.export, json.dumps(document, indent=2) + "\n")
            print(f"wrote {self.export}", file=sys.stderr)
            rows: list[tuple[str, ...]] = [
                (kind, f"{row['success']:.3f}", f"{row['mean_return']:.2f}", str(row["episodes"]))
                for kind, row in document["by_type"].items()
            ]
            columns: tuple[str, ...] = ("type", "strict success", "mean return", "episodes")
        else:
            summaries = {side: score.summarise(runs, members) for side, members in sides.items()}
            document = head | summaries
            rows = [
                (
                    side,
                    name,
                    f"{found['mean']:.3f}",
                    ends(found["seeds"]),
                    ends(found["rules_tapes"]),
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
        from tapebench.planning import mpc as mpcs
        from tapebench.planning.mpc import OBJECTIVES

        combinations = len(OBJECTIVES) * len(mpcs.SWEEP_PLANS) * len(mpcs.SWEEP_CANDIDATES)
        found = []
        with progress_bar("sweep", combinations) as advance:
            for point in mpcs.sweep(task, self.episodes_per_rule):
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
