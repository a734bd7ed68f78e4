"""What agents owe to one thing or another: rules, context, reward, augmentation."""

from __future__ import annotations

import numpy as np

from tapebench import seeding, splits, store
from tapebench.experiments import Exhibit, Experiment, Results, Scale
from tapebench.experiments.variants import SIDES, Variant, compare, levels, share, success_table
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.training import RunSpec

COUNTS = (1, 4, 16, 64)
"""Rules to be trained on, and then all of the split."""

CONTEXTS = (1, 2, 4, 8, 16)
"""Transitions that PEARL looks back on."""

AUGMENTATIONS = {
    "none (dqn)": Variant("dqn"),
    "shift": Variant("rad", {"augment": "shift"}),
    "shift, action too": Variant("rad", {"augment": "shift-with-action"}),
    "flip": Variant("rad", {"augment": "flip"}),
    "shift and flip (rad)": Variant("rad"),
    "shift, action too, and flip": Variant("rad", {"augment": "shift-with-action+flip"}),
}

REWARDS = {
    "distance, bonus 1": Variant("dqn"),
    "distance, no bonus": Variant("dqn", changes={"success_bonus": 0.0}),
    "distance, bonus 10": Variant("dqn", changes={"success_bonus": 10.0}),
    "sparse, bonus 1": Variant("dqn", changes={"reward": "sparse"}),
    "potential, bonus 1": Variant("dqn", changes={"reward": "potential"}),
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
    found = {
        str(count): Variant("ppo", changes={"train_on": some_rules(split, count)}).runs(
            scale, f"training rules {count}", 3
        )
        for count in counts
    }
    return found | {str(len(split.train)): Variant("ppo").runs(scale, "", 3)}


def show_training(results: Results) -> Exhibit:
    """Success against how many rules were trained on."""
    name, title = "training-rules", "Success of PPO against how many rules it was trained on"
    counts = tuple(float(count) for count in results.finished)
    panels = []
    for side, known in levels(results).items():
        reached = tuple(
            share([run[side]["success"] for run in results.summaries(setting)])
            for setting in results.finished
        )
        series = [Series("all rules of the side", counts, reached)]
        if side == "id":
            of_those = tuple(share(trained_on(results, count)) for count in results.finished)
            series.append(Series("those trained on", counts, of_those))
        panels.append(Panel(SIDES[side], tuple(series), known))
    picture = Picture(
        name=name,
        title=title,
        caption="Strict success; bands are 95% t-intervals over seeds. On the left also on the "
        "very rules that were trained on.",
        figure=lines(panels, x="rules trained on", y="strict success", log=True),
    )
    return Exhibit((success_table(name, title, results),), (picture,))


def trained_on(results: Results, setting: str) -> list[float]:
    """For each finished run its success on those rules asked about that it was trained on."""
    found = []
    for spec in results.finished[setting]:
        curve = store.read_table(results.path(spec) / "curve.parquet")
        counted = np.isin(curve["step"], np.unique(curve["step"])[-spec.last :])
        ours = counted & np.isin(curve["rule"], spec.task.rules)
        found.append(float(curve["success"][ours].mean(dtype=float)) if ours.any() else np.nan)
    return found


EXPERIMENTS = (
    Experiment(
        name="training-rules",
        about="How many laws must be seen until others are mastered?",
        settings=training_settings,
        show=show_training,
        paper="an ablation that it names and leaves open",
    ),
    compare(
        "context-length",
        "Success of PEARL against the length of its context",
        "How much must be looked back on to know the law?",
        {
            "none (dqn)": Variant("dqn"),
            **{f"{count} transitions": Variant("pearl", {"context": count}) for count in CONTEXTS},
        },
        paper="an ablation that it names and leaves open",
    ),
    compare(
        "augmentations",
        "Success of DQN with augmented observations",
        "What do augmentations do that the action does not follow?",
        AUGMENTATIONS,
    ),
    compare(
        "reward",
        "Success of DQN against what it is rewarded for",
        "Does the bonus or the shape of the reward matter?",
        REWARDS,
    ),
)
