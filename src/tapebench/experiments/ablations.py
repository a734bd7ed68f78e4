"""Ablations: training rules, context and its source, networks, budget, trials under the same rule,
reward, augmentation.

Networks commute with rotation, except where they are compared with plain ones and where
augmentations are to teach them that: with the budget of `lite@2` plain networks learn next to
nothing, so no change would make a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapebench.base import files, seeding
from tapebench.exam import metrics, policy
from tapebench.exam.exam import SUBSETS
from tapebench.exam.policy import Policy
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, Scale
from tapebench.experiments.main import examined
from tapebench.experiments.variants import (
    Variant,
    compare_variants,
    curve_panels,
    levels,
    over_seeds,
    share_over_seeds,
    success_table,
)
from tapebench.planning.belief import bayes_filter
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.report.style import SIDE_NAMES
from tapebench.report.tables import CEILING, REFERENCE, Cell, Column, Row, Table
from tapebench.runs.training import RunSpec
from tapebench.tasks import splits
from tapebench.tasks.task import Task

TRIALS = 4
"""Episodes in a row under the same rule."""

COUNTS = (1, 4, 16, 64)
"""Rules to be trained on, and then all of the split."""

CONTEXTS = (1, 2, 4, 8, 16)
"""Transitions that PEARL looks back on."""

FIRST_FLIPS = (1, 2, 4, 8)
"""Flips at the start of an episode that another policy makes for the agent."""


def informative(task: Task) -> Policy:
    """Flips the cell that tells most about the rule, of all 256; at random once it is known."""
    return bayes_filter(task, "all", beta=1.0, goal_weight=0.0, name="informative")


MLP: dict[str, Any] = {"network": "mlp"}
GRU: dict[str, Any] = {"network": "gru"}
"""Networks that know nothing of the ring."""

CONV: dict[str, Any] = {"network": "conv"}
CELLS: dict[str, Any] = {"network": "cells", "encoder_width": 64, "epochs": 4, "minibatches": 4}
"""The same idea for recurrent PPO, with the settings of its search."""

TUNED_CONV = CONV | {
    "discount": 0.9,
    "batch": 128,
    "epsilon_end": 0.05,
    "dueling": False,
    "kernel": 5,
    "n_step": 8,
    "final_rate": 1.0,
}
"""The best settings of DQN's searches for this network, see `docs/agents/dqn.md`."""

GUIDES: dict[str, Callable[[Task], Policy]] = {
    "random": policy.random,
    "most informative": informative,
}
"""The policies that make the first flips."""

AUGMENTATIONS = {
    "none (dqn)": Variant("dqn", MLP),
    "shift": Variant("rad", MLP | {"augment": "shift"}),
    "shift, action too (rad)": Variant("rad", MLP),
    "flip": Variant("rad", MLP | {"augment": "flip"}),
    "shift and flip (rad-label-shift)": Variant("rad", MLP | {"augment": "shift+flip"}),
    "shift, action too, and flip": Variant("rad", MLP | {"augment": "shift-with-action+flip"}),
}

NETWORKS = {
    "dqn, mlp": Variant("dqn", MLP),
    "dqn, conv": Variant("dqn", TUNED_CONV),
    "pearl, mlp": Variant("pearl", MLP),
    "pearl, conv": Variant("pearl", TUNED_CONV),
    "ppo, mlp": Variant("ppo", MLP),
    "ppo, conv": Variant("ppo", CONV),
    "rppo, gru": Variant("rppo", GRU),
    "rppo, cells": Variant("rppo", CELLS),
}

REWARDS = {
    "distance, bonus 1": Variant("dqn", TUNED_CONV),
    "distance, no bonus": Variant("dqn", TUNED_CONV, {"success_bonus": 0.0}),
    "distance, bonus 10": Variant("dqn", TUNED_CONV, {"success_bonus": 10.0}),
    "sparse, bonus 1": Variant("dqn", TUNED_CONV, {"reward": "sparse"}),
    "potential, bonus 1": Variant("dqn", TUNED_CONV, {"reward": "potential"}),
}


# How many laws until transfer?


def some_rules(split: splits.Split, count: int) -> tuple[int, ...]:
    """Rules of the training side, drawn so that fewer are always among more."""
    order = seeding.generator(0, "training rules", split.name).permutation(split.train)
    return tuple(sorted(map(int, order[:count])))


def training_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """PPO on more and more of the training rules, and on all of them."""
    split = splits.load(scale.split or scale.track.split)
    counts = [count for count in COUNTS if count < len(split.train)]
    settings = {
        str(count): Variant("ppo", CONV, {"train_on": some_rules(split, count)}).runs(
            scale, f"training rules {count}", 3
        )
        for count in counts
    }
    return settings | {
        str(len(split.train)): Variant("ppo", CONV).runs(scale, "training rules all", 3)
    }


def show_training(results: ExperimentResults) -> Exhibit:
    """Success against how many rules were trained on."""
    name, title = "training-rules", "Success of PPO against how many rules it was trained on"
    counts = tuple(float(count) for count in results.finished)
    panels = []
    for side, levels_of_side in levels(results.exam, results.root).items():
        reached = tuple(
            share_over_seeds([run[side]["success"] for run in results.summaries(setting)])
            for setting in results.finished
        )
        series = [Series("all rules of the side", counts, reached)]
        if side == "id":
            of_those = tuple(
                share_over_seeds(trained_on(results, count)) for count in results.finished
            )
            series.append(Series("those trained on", counts, of_those))
        panels.append(Panel(SIDE_NAMES[side], tuple(series), levels_of_side))
    picture = Picture(
        name=name,
        title=title,
        caption="Strict success; bands are 95% intervals over seeds. On the left also on the "
        "very rules that were trained on.",
        drawing=lines(panels, x="rules trained on", y="strict success", log=True),
    )
    return Exhibit((success_table(name, title, results),), (picture,))


def trained_on(results: ExperimentResults, setting: str) -> list[float]:
    """For each finished run its success on those evaluated rules that it was trained on."""
    success = []
    for spec in results.finished[setting]:
        curve = files.read_table(results.path(spec) / "curve.parquet")
        ours = metrics.counted(curve["step"], spec.last) & np.isin(curve["rule"], spec.task.rules)
        success.append(float(curve["success"][ours].mean(dtype=float)) if ours.any() else np.nan)
    return success


# Whose flips make the better context?


def informed_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """The agents that infer the rule within an episode."""
    return of_networks(scale, 3, "pearl, conv", "rppo, cells")


def led(guide: Policy, steps: int, task: Task) -> Callable[[Policy], Policy]:
    """A change to a policy: it follows a guide for the first flips."""
    return lambda own: policy.guided(own, guide, steps, task)


def show_informed(results: ExperimentResults) -> Exhibit:
    """Success against the number of first flips that another policy makes."""
    exam, by_side = results.exam, levels(results.exam, results.root)
    counts = [count for count in FIRST_FLIPS if count < exam.task.horizon]
    rows, panels = [], []
    for agent, specs in results.finished.items():
        alone = [examined(results, spec, exam) for spec in specs]
        reached = {("its own", count): alone for count in counts}
        for guide, make in GUIDES.items():
            other = make(exam.task)
            for count in counts:
                reached[guide, count] = [
                    examined(results, spec, exam, f"{count} {guide}", led(other, count, exam.task))
                    for spec in specs
                ]
        success = {
            (side, *how): share_over_seeds([run[side]["success"] for run in runs])
            for how, runs in reached.items()
            for side in by_side
        }
        listed = [("its own", counts[0]), *((guide, n) for guide in GUIDES for n in counts)]
        for source, count in listed:
            shown = None if source == "its own" else count
            cells = (success[side, source, count] for side in by_side)
            rows.append(Row((results.label(agent), source, shown, *cells)))
        for side, levels_of_side in by_side.items():
            series = [
                Series(
                    source,
                    tuple(map(float, counts)),
                    tuple(success[side, source, n] for n in counts),
                )
                for source in ("its own", *GUIDES)
            ]
            panels.append(Panel(f"{agent}, {SIDE_NAMES[side]}", tuple(series), levels_of_side))
    for baseline in next(iter(by_side.values())):
        kind = CEILING if baseline == "exact ceiling" else REFERENCE
        rows.append(
            Row((baseline, None, None, *(of_side[baseline] for of_side in by_side.values())), kind)
        )
    title = "Success when others make the first flips of an episode"
    about = (
        "The agent sees what comes of the flips, knows which they were, and acts from then on in "
        "what is left of the episode. Most informative: the greatest information gain about the "
        "rule, for an exact filter with all rules as candidates. The last state of each run counts;"
    )
    return Exhibit(
        tables=(
            Table(
                name="informativeness",
                title=title,
                caption=f"Strict success. {about} 95% intervals over seeds.",
                columns=(
                    Column(""),
                    Column("first flips"),
                    Column("how many"),
                    *(Column(f"{side.upper()} success") for side in by_side),
                ),
                rows=tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                name="informativeness",
                title=title,
                caption=f"{about} bands are 95% intervals over seeds.",
                drawing=lines(panels, x="first flips by others", y="strict success"),
            ),
        ),
    )


# Is the second try under a law better than the first?


def trial_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """Agents of `networks` that remember, and one that does not."""
    return of_networks(scale, 5, "ppo, conv", "pearl, conv", "rppo, gru", "rppo, cells")


def of_networks(scale: Scale, seeds: int, *names: str) -> dict[str, list[RunSpec]]:
    """Some of the runs of `networks`: the same ones, so that they are made once."""
    return {name: NETWORKS[name].runs(scale, f"networks {name}", seeds) for name in names}


def show_trials(results: ExperimentResults) -> Exhibit:
    """Success in each of several episodes under the same rule, memory kept in between."""
    exam = results.scale.exam(trials=TRIALS)
    sides = [side for side in SUBSETS if len(exam.rows(side))]
    runs = {
        name: [examined(results, spec, exam) for spec in specs]
        for name, specs in results.finished.items()
    }
    by_trial = {
        (name, side): np.array([run[side]["by_trial"] for run in summaries])
        for name, summaries in runs.items()
        for side in sides
    }
    numbers = tuple(float(number) for number in range(1, TRIALS + 1))
    panels = [
        Panel(
            SIDE_NAMES[side],
            tuple(
                Series(
                    name,
                    numbers,
                    tuple(share_over_seeds(column) for column in by_trial[name, side].T),
                )
                for name in runs
            ),
        )
        for side in sides
    ]
    columns, rows = [Column("")], []
    for side in sides:
        columns += [Column(f"{side.upper()}, trial {number}") for number in (1, TRIALS)]
        columns.append(Column(f"{side.upper()}, gain", signed=True))
    for name, summaries in runs.items():
        cells: list[Cell] = [results.label(name)]
        for side in sides:
            tried = by_trial[name, side]
            cells += [share_over_seeds(tried[:, 0]), share_over_seeds(tried[:, -1])]
            cells.append(over_seeds(tried[:, -1] - tried[:, 0]))
        rows.append(Row((*cells, len(summaries))))
    title = f"Success in {TRIALS} episodes in a row under the same rule"
    about = (
        "Whoever has a memory keeps it from episode to episode; each starts from another tape. "
        "PPO has none: how it differs from trial to trial is due to the tapes. The last state of "
        "each run counts;"
    )
    return Exhibit(
        tables=(
            Table(
                name="trials",
                title=title,
                caption=f"Strict success. {about} gain is last − first. 95% intervals over "
                f"seeds. {results.scale.about(trials=TRIALS)}",
                columns=(*columns, Column("seeds")),
                rows=tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                name="trials",
                title=title,
                caption=f"{about} bands are 95% intervals over seeds.",
                drawing=lines(panels, x="trial", y="strict success"),
            ),
        ),
    )


# Does memory pay once there is time to learn to use it?


SLOW = {"learning_rate": 0.0005, "final_rate": 0.0}
"""A quarter of the rate of PPO, falling to nothing: its own was searched with a small budget."""


def budget_settings(scale: Scale) -> dict[str, list[RunSpec]]:
    """PPO without and with memory, with plain and with equivariant networks."""
    settings = of_networks(scale, 3, "ppo, mlp", "ppo, conv", "rppo, gru", "rppo, cells")
    for name, variant in {
        "ppo, mlp, slow": Variant("ppo", MLP | SLOW),
        "rppo, cells, slow": Variant("rppo", CELLS | SLOW),
    }.items():
        settings[name] = variant.runs(scale, f"budget {name}", 3)
    return settings


def show_budget(results: ExperimentResults) -> Exhibit:
    """Success against environment steps."""
    name, title = "budget", "Success of PPO without and with memory against its budget"
    curves = {
        setting: [run["curve"] for run in results.summaries(setting)]
        for setting in results.finished
    }
    picture = Picture(
        name=name,
        title=title,
        caption="Strict success at every evaluation; bands are 95% intervals over seeds.",
        drawing=lines(
            curve_panels(results.exam, results.root, curves),
            x="environment steps",
            y="strict success",
        ),
    )
    return Exhibit((success_table(name, title, results),), (picture,))


def context_lengths(scale: Scale) -> dict[str, Variant]:
    """PEARL by context length, compared with DQN, which has no context."""
    named = {f"{count} transition{'s' * (count > 1)}": count for count in CONTEXTS}
    return {"none (dqn)": Variant("dqn", TUNED_CONV)} | {
        name: Variant("pearl", {**TUNED_CONV, "context": count}) for name, count in named.items()
    }


EXPERIMENTS = (
    Experiment(
        name="training-rules",
        about="How many training rules does generalisation take?",
        settings=training_settings,
        show=show_training,
        paper="an ablation that it leaves open",
    ),
    compare_variants(
        "context-length",
        "Success of PEARL against the length of its context",
        "How much context does inferring the rule take?",
        context_lengths,
        paper="an ablation that it leaves open",
    ),
    Experiment(
        name="informativeness",
        about="Is a context from informative flips worth more than one from the agent's own?",
        settings=informed_settings,
        show=show_informed,
        paper="an ablation that it leaves open",
    ),
    compare_variants(
        "networks",
        "Success of agents with networks that know nothing of the ring, and with such that do",
        "What is an equivariant network worth?",
        NETWORKS,
        seeds=5,
    ),
    Experiment(
        name="budget",
        about="Does memory win when there is time to learn to use it? For --track long.",
        settings=budget_settings,
        show=show_budget,
    ),
    Experiment(
        name="trials",
        about="Is the fourth episode under the same rule better than the first?",
        settings=trial_settings,
        show=show_trials,
    ),
    compare_variants(
        "augmentations",
        "Success of DQN with augmented observations",
        "What do augmentations do, where the action goes along and where it does not?",
        AUGMENTATIONS,
    ),
    compare_variants(
        "reward",
        "Success of DQN against what it is rewarded for",
        "Does the bonus or the shape of the reward matter?",
        REWARDS,
    ),
)
