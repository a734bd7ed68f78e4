"""`tape show|exact|oracle`: the laws themselves, what is possible and what planning reaches."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tapebench.cli.console import (
    check_target,
    ends,
    make_table,
    parse_rule,
    parse_rules,
    parse_size,
    parse_steps,
    progress_bar,
    report,
    screen,
    separate_rules,
)

if TYPE_CHECKING:
    from tapebench.physics.family import Family
    from tapebench.tasks.task import Task


@dataclass(frozen=True)
class Show:
    """Draw an episode as a space-time diagram: time runs down, flips are marked.

    For example:
      tape show --rules 30,108
      tape show --family life --shape 8x8 --rules B3/S23 --policy greedy
    """

    rules: Annotated[tuple[str, ...], tyro.conf.arg(metavar="RULES")] = ("30",)
    """Rules to draw, side by side, by number or label, like 30,108 or B3/S23."""
    family: Annotated[str, tyro.conf.arg(metavar="FAMILY")] = "elementary"
    """elementary, ring2 (five cells on a ring) or life (on a torus)."""
    policy: Annotated[str, tyro.conf.arg(metavar="POLICY")] = "random"
    """Policy: random, flip-ones, greedy, mpc, beam, optimal, bayes or belief-planner; none to watch
    the rule alone."""
    length: Annotated[int | None, tyro.conf.arg(metavar="CELLS")] = None
    """Cells on the ring, by default 32."""
    shape: Annotated[str | None, tyro.conf.arg(metavar="SIDES")] = None
    """Sides of a torus, like 5x5."""
    horizon: Annotated[int, tyro.conf.arg(metavar="STEPS")] = 32
    """Steps at most."""
    episode: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Which of the exam's start tapes."""
    seed: Annotated[int, tyro.conf.arg(metavar="SEED")] = 0
    """Seed of the policy's own draws."""
    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "fps30"
    """Split that says which rules are held out."""
    png: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the diagram to this file as a picture instead."""

    def run(self) -> None:
        from tapebench.physics import families
        from tapebench.tasks import render

        family = families.get(self.family)
        if not self.rules:
            raise ValueError("name at least one rule: --rules 30")
        if self.png is not None:
            check_target(self.png)
            if family.dimensions > 1:
                raise ValueError("a picture is drawn of rings alone: leave out --png")
        rules = [rule for text in self.rules for rule in separate_rules(text)]
        panels = [self._panel(parse_rule(rule, family), family) for rule in rules]
        if self.png is not None:
            from tapebench.base import files
            from tapebench.report.figures import spacetimes

            drawn = spacetimes(panels, across=len(panels), side=4.2, legend=True)
            files.write_bytes(self.png, drawn.render("png"))
            print(f"wrote {self.png}", file=sys.stderr)
        else:
            render.print_panels(panels)

    def _panel(self, rule: int, family: Family) -> Any:
        from tapebench.physics import space, starts
        from tapebench.tasks import render, splits
        from tapebench.tasks.task import make_task
        from tapebench.tasks.universe import ELEMENTARY

        if self.episode < 0:
            raise ValueError(f"episode must be 0 or more, not {self.episode}")
        split, name = splits.load(self.split), f"rule {family.label(rule)}"
        is_elementary = family == ELEMENTARY.family
        about = ELEMENTARY.features[rule].type if is_elementary else family.name
        if family == split.universe.family:
            sides = {"held out": split.test, "seen in training": split.train}
            about = ", ".join([about, *(side for side, rules in sides.items() if rule in rules)])
        about += "; "
        task = make_task(
            family=family.name,
            length=self.length,
            shape=self.shape,
            horizon=self.horizon,
            rules=rule,
        )
        shape = task.space.shape
        if self.policy == "none":
            words = starts.exam_tapes(task.space, self.episode + 1)[self.episode]
            tape = space.to_int(words)
            tapes = [tape]
            for _ in range(self.horizon):
                tapes.append(task.family.evolve(tapes[-1], rule, task.space))
            cells = [[(tape >> cell) & 1 for cell in range(task.length)] for tape in tapes]
            return render.Spacetime(name, f"{about}no flips", cells, [], shape)
        from tapebench.exam import policy as policies
        from tapebench.exam import rollout

        policy = policies.make(self.policy, task, self.split)
        episodes = rollout.rollout(policy, task, episodes=self.episode + 1, seed=self.seed)
        traced, flips = episodes.trace(0, self.episode)
        if episodes.success[0, self.episode]:
            outcome = f"goal in {len(flips)} steps"
        else:
            outcome = f"distance {episodes.final_distance[0, self.episode]:.2f} at the end"
        title = f"{name}, {self.policy}"
        return render.Spacetime(title, f"{about}{outcome}", traced.tolist(), flips.tolist(), shape)


SHORT = 16
"""Cells on the ring of `tape exact` unless it says otherwise."""

SHOWN_SEQUENCES = 50
"""Sequences of rules in the table of `tape exact --switch`."""


@dataclass(frozen=True)
class Exact:
    """From which tapes can the goal be reached at all, and in how few steps? By exhaustive search.

    Up to 24 cells need nothing more; up to 32 need the extra `exact`. Answers for the zero goal at
    32 cells are shipped, and read unless --search is given. Other families take up to 25 cells.

    For example:
      tape exact --length 20 --rules 30,110
      tape exact --family life --shape 4x4 --horizon 16 --rules B3/S23,B36/S23 --json
    """

    family: Annotated[str, tyro.conf.arg(metavar="FAMILY")] = "elementary"
    """elementary, ring2 (five cells on a ring) or life (on a torus)."""
    length: Annotated[int | None, tyro.conf.arg(metavar="CELLS")] = None
    """Cells on the ring, by default 16."""
    shape: Annotated[str | None, tyro.conf.arg(metavar="SIDES")] = None
    """Sides of a torus, like 5x5."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Steps at most; by default as many as there are cells."""
    rules: Annotated[str, tyro.conf.arg(metavar="RULES")] = "all"
    """all, train or test (of --split), or rules like 0,30,110; of other families by label, like
    B3/S23,B36/S23."""
    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "fps30"
    """Split that train and test refer to."""
    goal: Annotated[str, tyro.conf.arg(metavar="GOAL")] = "zeros"
    """zeros, or the cells of a tape like 0110..."""
    noise: Annotated[float, tyro.conf.arg(metavar="P")] = 0.0
    """Each cell flips with this probability after the update: shows the success of an optimal
    policy that knows the rule, up to 20 cells."""
    switch: Annotated[str, tyro.conf.arg(metavar="STEPS")] = ""
    """Steps at which the rule changes to another of --rules, like 4 or 2,5: what can be reached by
    a player that knows all rules and times, for every sequence of rules, up to 16 cells."""
    search: bool = False
    """Search again even where the answer is shipped."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.physics import exact, families
        from tapebench.tasks.task import make_task, parse_space

        family = families.get(self.family)
        length = SHORT if self.length is None and self.shape is None else self.length
        cells = parse_space(family, length, self.shape).size
        horizon = cells if self.horizon is None else self.horizon
        which = parse_rules(self.rules, family)
        task = make_task(
            family=family.name,
            length=length,
            shape=self.shape,
            horizon=horizon,
            split=self.split,
            rules=which,
            goal=self.goal,
            noise=self.noise,
            switch=parse_steps(self.switch),
        )
        if task.goal is None:
            raise ValueError("the goal must be one tape: use zeros or its cells")
        if task.schedule.switches:
            self._print_switching(task)
            return
        if task.noise:
            self._print_noisy(task)
            return
        exact.check_reach(task.space, exact.most_cells(family))
        drawn_for = task.universe.horizon and task.universe.space
        is_shipped = task.goal == 0 and (
            drawn_for == task.space or (task.length == exact.MAX_LENGTH and horizon <= 32)
        )
        if is_shipped and not self.search:
            shipped = task.universe.ceilings(task.length, horizon)
            solved = {rule: shipped[rule] for rule in task.rules}
        else:
            with progress_bar(f"exact, {task.space.title}", len(task.rules)) as advance:
                solved = exact.reach_all(
                    task.rules, task.space, horizon, task.goal, advance, family
                )
        mean = sum(answer.solvable for answer in solved.values()) / len(solved)
        if self.json:
            document = _head(task) | {
                "mean_ceiling": mean,
                "mean_ceiling_excluding_goal": sum(
                    answer.solvable_excluding_goal for answer in solved.values()
                )
                / len(solved),
                "rules": {family.label(rule): answer.as_dict() for rule, answer in solved.items()},
            }
            print(json.dumps(document))
            return
        title = f"Exact reachability, {task.space.title}, H = {horizon}"
        table = make_table("rule", "solvable", "worst case (steps)", "mean (steps)", title=title)
        for rule, answer in solved.items():
            row = f"{answer.solvable:.6f}", str(answer.max_steps), f"{answer.mean_steps:.3f}"
            table.add_row(family.label(rule), *row)
        console = screen()
        everywhere = sum(answer.solvable == 1 for answer in solved.values())
        console.print(
            f"mean ceiling over {len(solved)} rules: {mean:.4f}; "
            f"solvable from every tape: {everywhere} rules"
        )
        console.print(table)

    def _print_switching(self, task: Task) -> None:
        from tapebench.physics import switching

        if task.noise:
            raise ValueError("what can be reached is computed with --noise or --switch, not both")
        switches = task.schedule.switches
        count = switching.count_sequences(len(task.rules), len(switches))
        with progress_bar(f"exact, rules that switch, {task.space.title}", count) as advance:
            by_sequence = switching.ceilings_by_sequence(
                task.rules,
                switches,
                task.space,
                task.horizon,
                task.goal or 0,
                advance,
                task.family,
            )
        mean = sum(reach.solvable for reach in by_sequence.values()) / len(by_sequence)
        if self.json:
            document = _head(task) | {
                "switch": list(switches),
                "mean_ceiling": mean,
                "mean_ceiling_excluding_goal": sum(
                    reach.solvable_excluding_goal for reach in by_sequence.values()
                )
                / len(by_sequence),
                "sequences": {
                    ",".join(map(task.family.label, rules)): reach.as_dict()
                    for rules, reach in by_sequence.items()
                },
            }
            print(json.dumps(document))
            return
        steps = ", ".join(map(str, switches))
        title = (
            f"Exact reachability, {task.space.title}, H = {task.horizon}, "
            f"rules and times known, switch at {steps}"
        )
        table = make_table("rules", "solvable", "worst case (steps)", "mean (steps)", title=title)
        for rules, reach in list(by_sequence.items())[:SHOWN_SEQUENCES]:
            row = f"{reach.solvable:.6f}", str(reach.max_steps), f"{reach.mean_steps:.3f}"
            table.add_row(", ".join(map(task.family.label, rules)), *row)
        console = screen()
        console.print(f"mean ceiling over {len(by_sequence)} sequences of rules: {mean:.4f}")
        console.print(table)
        if len(by_sequence) > SHOWN_SEQUENCES:
            console.print(f"the first {SHOWN_SEQUENCES} of them; --json prints all")

    def _print_noisy(self, task: Task) -> None:
        from tapebench.physics import exact

        exact.check_reach(task.space, exact.NOISE_LENGTH)
        label = task.family.label
        with progress_bar(f"exact under noise, {task.space.title}", len(task.rules)) as advance:
            ceilings = exact.noisy_ceilings(
                task.rules,
                task.space,
                task.horizon,
                task.noise,
                task.goal or 0,
                advance,
                task.family,
            )
        mean = sum(ceilings.values()) / len(ceilings)
        if self.json:
            document = _head(task) | {
                "noise": task.noise,
                "mean_ceiling_excluding_goal": mean,
                "rules": {label(rule): {"ceiling": ceiling} for rule, ceiling in ceilings.items()},
            }
            print(json.dumps(document))
            return
        title = f"Best success with the rule known, {task.space.title}, H = {task.horizon}"
        table = make_table("rule", f"noise {task.noise:g}", title=title)
        for rule, ceiling in ceilings.items():
            table.add_row(label(rule), f"{ceiling:.6f}")
        console = screen()
        console.print(
            f"mean ceiling over {len(ceilings)} rules, from start tapes other than the goal: "
            f"{mean:.4f}"
        )
        console.print(table)


def _head(task: Task) -> dict[str, Any]:
    """What a document of exact figures is about."""
    return _describe_laws(task) | {
        "length": task.length,
        "horizon": task.horizon,
        "goal": f"{task.goal:0{task.length}b}"[::-1],
    }


def _describe_laws(task: Task) -> dict[str, Any]:
    """Family and shape, but of elementary rules, which are not named."""
    if task.family.name == "elementary":
        return {}
    return {"family": task.family.name, "shape": list(task.space.shape)}


@dataclass(frozen=True)
class Oracle:
    """Success of random-shooting MPC with the true rule: the budgeted planning reference.

    For example:
      tape oracle --objective sum --candidates 128 --side ood
      tape oracle --family life --split life-H8-matched --seeds 1
    """

    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "fps30"
    """Split whose sides are reported."""
    objective: Annotated[str, tyro.conf.arg(metavar="OBJECTIVE")] = "min"
    """Score of a candidate: its final, summed (sum) or minimum (min) distance."""
    horizon_plan: Annotated[int, tyro.conf.arg(metavar="FLIPS")] = 8
    """Flips per candidate sequence."""
    candidates: Annotated[int, tyro.conf.arg(metavar="N")] = 512
    """Candidate sequences per step."""
    side: Annotated[str, tyro.conf.arg(metavar="SIDE")] = "all"
    """id, ood, or all."""
    family: Annotated[str, tyro.conf.arg(metavar="FAMILY")] = "elementary"
    """elementary, ring2 (five cells on a ring) or life (on a torus)."""
    length: Annotated[int | None, tyro.conf.arg(metavar="CELLS")] = None
    """Cells on the ring, by default 32, or what the rules of the split are drawn for."""
    shape: Annotated[str | None, tyro.conf.arg(metavar="SIDES")] = None
    """Sides of a torus, like 5x5, by default those that the rules of the split are drawn for."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """Steps per episode; by default as many as there are cells, or those that the rules of the
    split are drawn for."""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 20
    """Start tapes for every rule."""
    seeds: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Seeds of the planner's own samples."""
    by_type: bool = False
    """Report by operational type instead, or by the share of ones in tables of other families, and
    write --export."""
    export: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("mpc_by_type_eval.json")
    """Where --by-type writes its figures."""
    sweep: bool = False
    """Vary planning horizon, candidates and objective instead (some minutes)."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        from tapebench.base import files
        from tapebench.exam import score
        from tapebench.physics import families
        from tapebench.planning.mpc import mpc
        from tapebench.tasks import splits
        from tapebench.tasks.task import make_task

        for name in ("episodes", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.by_type:
            check_target(self.export)
        split = splits.load(self.split)
        sides = splits.sides(split, self.side)
        family = families.get(self.family)
        length, shape, horizon = parse_size(
            family, self.split, self.length, self.shape, self.horizon
        )
        task = make_task(
            family=family.name,
            length=length,
            shape=shape,
            horizon=horizon,
            split=split,
            rules=sides.get("all") or sides[self.side],
        )
        head: dict[str, Any] = {
            "split": split.name,
            "side": self.side,
            **_describe_laws(task),
            "length": task.length,
            "horizon": horizon,
            "episodes_per_rule": self.episodes,
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
            runs = score.run_seeds(policy, task, self.episodes, self.seeds, advance)
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
            summaries = {
                side: score.summarise_rules(runs, members) for side, members in sides.items()
            }
            document = head | summaries
            rows = [
                (
                    side,
                    name,
                    f"{interval['mean']:.3f}",
                    ends(interval["seeds"]),
                    ends(interval["rules_tapes"]),
                )
                for side, summary in summaries.items()
                for name, interval in summary.items()
                if isinstance(interval, dict)
            ]
            columns = ("side", "metric", "mean", "95% over seeds", "95% over rules and tapes")
        report(
            document,
            self.json,
            f"{policy.name}, plan {self.horizon_plan}, "
            f"{self.candidates} candidates, {task.space.title}, H = {horizon}",
            columns,
            rows,
        )

    def _report_sweep(self, head: dict[str, Any], task: Any) -> None:
        from tapebench.planning import mpc as mpcs
        from tapebench.planning.mpc import OBJECTIVES

        combinations = len(OBJECTIVES) * len(mpcs.SWEEP_PLANS) * len(mpcs.SWEEP_CANDIDATES)
        points = []
        with progress_bar("sweep", combinations) as advance:
            for point in mpcs.sweep(task, self.episodes):
                points.append(point)
                advance(point)
        rows = [
            (
                p["objective"],
                str(p["plan"]),
                str(p["candidates"]),
                f"{p['success']:.3f}",
                f"{p['final_distance']:.3f}",
            )
            for p in points
        ]
        columns = ("objective", "plan", "candidates", "strict success", "final distance")
        report(head | {"sweep": points}, self.json, "Planner sensitivity", columns, rows)
