"""What a benchmark over folds comes to: who stands above what, and three sentences.

They say who acts on the law, by lesions of the memory; what an unseen rule costs; and what to try
next. Every figure is on the rules that take more than flipping ones, where there are such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tapebench.exam import lesion
from tapebench.report import strata
from tapebench.report.contests import IDENTIFICATION
from tapebench.report.folds import FoldSet, references
from tapebench.report.tables import CEILING
from tapebench.runs.evaluation import Lesioned
from tapebench.stats import Interval

FORGETS = "it has no memory"
"""Why there are no lesions of an agent that remembers nothing, see `lesion.batch_axes`."""

TOLD = "pqn"
"""The agent to be given the rule in what is advised: it trains fastest of those that can be."""


@dataclass(frozen=True)
class Verdict:
    """What is printed at the end."""

    standings: tuple[str, ...]
    """By name who is above each line on rules seen, the lowest line first; then the bounds."""
    law: str
    cost: str
    following: str

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The sentences as a page has them."""
        return (("law", self.law), ("unseen", self.cost), ("next", self.following))

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self.standings, self.law, self.cost, self.following)


def verdict(fold_set: FoldSet, lesions: Mapping[str, Lesioned]) -> Verdict:
    """What the runs of a set come to; `lesions` by the agents' labels."""
    owed = {
        agent: _owed(fold_set, lesioned) for agent, lesioned in lesions.items() if lesioned.losses
    }
    acting = [agent for agent, mean in owed.items() if mean.low > 0]
    return Verdict(
        standings=_standings(fold_set),
        law=_law(owed, acting, lesions),
        cost=_cost(fold_set, acting),
        following=_following(fold_set, acting),
    )


def _group(fold_set: FoldSet) -> tuple[str, list[int]]:
    return next(iter(fold_set.groups.items()))


def _seen(fold_set: FoldSet) -> dict[str, float]:
    """Mean success of each agent on the rules seen, the best first."""
    _, rules = _group(fold_set)
    means = {agent: fold_set.means(runs, rules)["seen"] for agent, runs in fold_set.runs.items()}
    known = {agent: mean for agent, mean in means.items() if mean is not None}
    return dict(sorted(known.items(), key=lambda item: -item[1]))


def _levels(fold_set: FoldSet) -> dict[str, tuple[str, float]]:
    """Kind and mean success of what needs no training, the lowest first."""
    name, rules = _group(fold_set)
    levels = {
        label: (kind, level)
        for label, kind, by_rule in references(fold_set, name)
        if (level := fold_set.mean(by_rule, rules)) is not None
    }
    return dict(sorted(levels.items(), key=lambda item: item[1][1]))


def _standings(fold_set: FoldSet) -> tuple[str, ...]:
    name, rules = _group(fold_set)
    seen, levels = _seen(fold_set), _levels(fold_set)
    lines = [f"Mean success on {len(rules)} {name} rules, as seen in training:"]
    for label in ("random", "flip-ones", strata.MEMORYLESS):
        if label in levels:
            level = levels[label][1]
            above = [agent for agent, mean in seen.items() if mean > level]
            lines.append(f"  above {label}, {level:.3f}: {', '.join(above) or 'nobody'}")
    bounds = [
        f"{label} {level:.3f}"
        for label, (kind, level) in levels.items()
        if kind == CEILING and label != strata.MEMORYLESS
    ]
    return (*lines, f"  what can be reached: {', '.join(bounds)}")


def _owed(fold_set: FoldSet, lesioned: Lesioned) -> Interval:
    assert lesioned.exam is not None
    _, rules = _group(fold_set)
    rows = np.flatnonzero(np.isin(lesioned.exam.rules, rules))
    return lesion.over_rules(lesion.law(lesioned.losses), rows, lesioned.exam)


def _law(owed: Mapping[str, Interval], acting: list[str], lesions: Mapping[str, Lesioned]) -> str:
    shown = [f"{agent} ({owed[agent]})" for agent in acting]
    others = [f"{agent} ({mean})" for agent, mean in owed.items() if agent not in acting]
    forgetful = [agent for agent, each in lesions.items() if each.reason == FORGETS]
    untold = [
        f"{agent} ({each.reason})"
        for agent, each in lesions.items()
        if each.reason not in ("", FORGETS)
    ]
    parts = [f"Acts on the law, by what a memory of another law costs: {_list(shown) or 'nobody'}"]
    if others:
        parts.append(f"not shown of {_list(others)}")
    if forgetful:
        parts.append(f"without memory of the episode: {_list(forgetful)}")
    if untold:
        parts.append(f"not asked: {_list(untold)}")
    if len(owed) > 1:
        parts.append("intervals are over rules, not corrected for the number of agents")
    return "; ".join(parts) + "."


def _cost(fold_set: FoldSet, acting: list[str]) -> str:
    name, _ = _group(fold_set)
    whose = acting or list(_seen(fold_set))[:1]
    told = []
    for agent in whose:
        cost = fold_set.runs[agent].costs().get(name) if agent in fold_set.runs else None
        if cost is not None:
            told.append(
                f"{agent} {cost.cost.mean:+.3f} [{cost.cost.low:+.3f}, {cost.cost.high:+.3f}], "
                f"of {cost.seen.mean:.3f} (smallest detectable cost {cost.smallest:.3f})"
            )
    if not told:
        return "What an unseen rule costs cannot be told of a single seed for each fold."
    whom = "those who act on the law" if acting else "the best, who was not shown to act on the law"
    return f"What an unseen rule costs {whom}: {_list(told)}."


def _following(fold_set: FoldSet, acting: list[str]) -> str:
    seen, levels = _seen(fold_set), _levels(fold_set)
    best = next((agent for agent in seen if agent.rpartition("-")[0] not in IDENTIFICATION), "")
    memoryless = levels.get(strata.MEMORYLESS, ("", np.nan))[1]
    blind = levels.get(strata.BLIND, ("", np.nan))[1]
    if not best or np.isnan(memoryless):
        return "To try next: `tape bench --track core`, four seeds of ten times the steps."
    if seen[best] < memoryless:
        return (
            f"To try next: {best} ({seen[best]:.3f}) is below what can be done without memory, so "
            "control comes first. Give the rule to a learner and see whether it can use it: "
            f"`tape train {TOLD} --track core --split folds-0 --seeds 1 --set context=rule "
            "--experiment told`."
        )
    if seen[best] < (memoryless + blind) / 2:
        return (
            f"To try next: {best} ({seen[best]:.3f}) is above what can be done without memory and "
            "less than half way to the blind ceiling. Give a learner what the episode has shown: "
            f"`tape train {TOLD} --track core --split folds-0 --seeds 1 --set context=evidence "
            "--experiment shown`."
        )
    return (
        f"To try next: {best} ({seen[best]:.3f}) is near the blind ceiling; see what it loses by "
        "which move: `tape evaluate` one of its runs."
    )


def _list(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if names[:-1] else "") + names[-1] if names else ""
