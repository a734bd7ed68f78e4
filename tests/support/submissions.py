"""Bundles as they come to a leaderboard, of simple policies that differ from fold to fold."""

from functools import cache

from stored_runs import AGENTS
from tapebench.base import files
from tapebench.exam import bundle
from tapebench.exam.policy import Policy
from tapebench.exam.rollout import rollout
from tapebench.exam.seating import Conditions
from tapebench.runs.tracks import get_track

FOLDS = get_track("core").splits


@cache
def core_exam(split=FOLDS[0], name="standard"):
    return get_track("core").exam(split=split, exam=name)


@cache
def play(policy, seed, exam_name):
    """Episodes on an exam of `core`; the same whatever fold it is of."""
    exam = core_exam(name=exam_name)
    player = Policy(
        policy,
        lambda rule, num: (),
        lambda memory, obs, stream: (memory, AGENTS[policy](obs, stream)),
        backend="numpy",
    )
    return rollout(player, exam.task, None, exam.episodes, seed=seed, salt=exam.salt)


def submit(place, name, *, seed=0, splits=FOLDS, policy="any-one", exam="standard", **about):
    """One bundle for each split, played with other draws in each; their paths.

    `rows` and `sees_rule` are what the bundles say of themselves.
    """
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for split in splits:
        asked = core_exam(split, exam)
        episodes = play(policy, 10 * seed + FOLDS.index(split), exam)
        described = {
            "policy": name,
            "sees_rule": about.get("sees_rule", False),
            "provenance": files.provenance(1.0),
        }
        made = Conditions("in a process of its own", about.get("rows", "independent"))
        paths.append(place / f"{name.replace('/', '-')}-{seed}-{split}.tape")
        bundle.write(paths[-1], episodes, asked, described, made)
    return paths
