"""Runs over folds whose cost of unseen is known, and how often its interval holds it.

    python tests/support/fold_runs.py [datasets]

prints the table of docs/protocol.md. Success is drawn on the scale of logits: how hard a rule is
and what it costs to hold it out belong to it and its mirror image, a run is lucky with all rules,
with what being unseen costs, and with each rule on its own; then come 20 tapes a rule, over which
the last three evaluations differ.
"""

import sys
from dataclasses import dataclass

import numpy as np

from scores import chance, generator, normal_mean
from tapebench.stats.folds import estimate_cost
from tapebench.tasks import folds
from tapebench.tasks.universe import ELEMENTARY

EPISODES = 20


@dataclass(frozen=True)
class Mix:
    """What success varies with; all are standard deviations of logits but for the two means."""

    hardness: float = 2.0
    usual: float = 0.0
    cost: float = 0.3
    cost_of_rule: float = 0.3
    cost_of_run: float = 0.2
    run: float = 0.3
    fold: float = 0.0
    run_and_rule: float = 0.3

    @property
    def truth(self):
        """The cost, over all rules and runs like these."""
        seen = np.hypot(np.hypot(self.hardness, self.run), np.hypot(self.fold, self.run_and_rule))
        unseen = np.hypot(seen, np.hypot(self.cost_of_rule, self.cost_of_run))
        means = [
            normal_mean(lambda logit, level=level: chance(level + logit), float(spread))
            for level, spread in ((self.usual, seen), (self.usual - self.cost, unseen))
        ]
        return means[0] - means[1]


MIXES = {
    "usual": Mix(),
    "runs alike": Mix(run=0, cost_of_run=0, run_and_rule=0),
    "rules lose alike": Mix(cost_of_rule=0),
    "runs alike, rules lose alike": Mix(run=0, cost_of_run=0, run_and_rule=0, cost_of_rule=0),
    "no cost": Mix(cost=0, cost_of_rule=0, cost_of_run=0),
    "runs differ most": Mix(hardness=1, cost_of_rule=0.1, cost_of_run=0.5, run=0.7),
    "folds differ": Mix(fold=0.7),
    "near the floor": Mix(usual=-4, run=0.5),
    "large cost": Mix(usual=1, cost=1, cost_of_rule=1, cost_of_run=0.5, run_and_rule=0.5),
}


def layout(stratum=None):
    """The fold of each rule of the folds, and its class of mirror images, both `[R]`."""
    kinds = folds.core_strata()
    places = [
        (number, rule)
        for number, part in enumerate(folds.parts()[: folds.NUM])
        for rule in part
        if stratum in (None, kinds[rule])
    ]
    twins = [ELEMENTARY.twins(rule) for _, rule in places]
    classes = np.unique([min(pair) for pair in twins], return_inverse=True)[1]
    return np.array([number for number, _ in places]), classes


def draw(rng, datasets, seeds, mix, fold, classes):
    """Success in each fold, `[datasets, seeds, R]`."""
    num = classes.max() + 1
    of_rule = rng.normal(mix.usual, mix.hardness, (datasets, 1, num))[..., classes]
    cost = rng.normal(mix.cost, mix.cost_of_rule, (datasets, 1, num))[..., classes]
    scores = []
    for number in range(folds.NUM):
        run = rng.normal(0, mix.run, (datasets, seeds, 1)) + rng.normal(
            0, mix.fold, (datasets, 1, 1)
        )
        own = rng.normal(0, mix.run_and_rule, (datasets, seeds, num))[..., classes]
        lost = cost + rng.normal(0, mix.cost_of_run, (datasets, seeds, 1))
        logits = of_rule + run + own - (fold == number) * lost
        scores.append(rng.binomial(EPISODES, chance(logits)) / EPISODES)
    return scores


def simulate(mix, seeds, datasets, stratum=None, seed=0, classes_count=True):
    """The share of intervals that hold the truth, and the estimates.

    Without `classes_count`, mirror images are taken for separate evidence.
    """
    fold, classes = layout(stratum)
    rng, held, estimates = generator(seed), [], []
    for _ in range(0, datasets, 250):
        scores = draw(rng, 250, seeds, mix, fold, classes)
        estimate = estimate_cost(scores, fold, classes if classes_count else np.arange(len(fold)))
        held.append(np.abs(estimate.mean - mix.truth) <= estimate.half_width)
        estimates.append(estimate)
    return float(np.mean(held)), estimates


def main():
    datasets = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    names = ("all rules", "beyond-reflex", "reflex")
    print("| what varies |", " | ".join(f"{name}, 5 × {s}" for name in names for s in (2, 4)), "|")
    print("|" + "---|" * 7)
    for label, mix in MIXES.items():
        shares = [
            simulate(mix, seeds, datasets, None if name == names[0] else name)[0]
            for name in names
            for seeds in (2, 4)
        ]
        print(f"| {label} |", " | ".join(f"{share:.3f}" for share in shares), "|", flush=True)


if __name__ == "__main__":
    main()
