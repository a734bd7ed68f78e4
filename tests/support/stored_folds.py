"""Runs over folds without any training, of a few rules each."""

from stored_runs import store_run
from tapebench.exam.exam import make_exam
from tapebench.tasks import folds

KINDS = folds.core_strata()
RULES = [
    rule
    for part in folds.parts()[: folds.NUM]
    for kind in ("beyond-reflex", "reflex")
    for rule in [rule for rule in part if KINDS[rule] == kind][:4]
]
"""Eight of each fold, half of them beyond reflex."""

EXAMS = {
    name: make_exam(split=name, length=folds.LENGTH, horizon=folds.HORIZON, episodes=3, rules=RULES)
    for name in folds.NAMES
}


def store_folds(root, agent, names=folds.NAMES, seeds=2):
    """Runs of an agent with each of some folds, as the experiment `tiny`."""
    for name in names:
        for seed in range(seeds):
            store_run(root, agent, seed, experiment="tiny", exam=EXAMS[name], last=1)
