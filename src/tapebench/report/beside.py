"""A bundle beside published agents: the figure of a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tapebench import stats
from tapebench.base import files, seeding
from tapebench.base.names import one_of
from tapebench.exam import bounds, bundle, by_stratum
from tapebench.exam.bundle import Bundle
from tapebench.exam.exam import Exam
from tapebench.exam.intervals import share_over_seeds
from tapebench.report import contests, figures, findings
from tapebench.report.contests import Contest
from tapebench.runs import published
from tapebench.runs.board import HEADLINE, unseen_and_seen
from tapebench.stats import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = ("svg", "pdf", "png")

Dots = Mapping[str, Interval | float]


def plot(*bundles: str | Path, track: str = "full", out: str | Path | None = None) -> Figure:
    """Draw bundles beside the published agents of a track, on rules seen and unseen.

    Success on beyond-reflex rules, or on all where strata are not known. Bundles of one name over
    several folds are one agent, and all must be of one kind of exam. Intervals of bundles are over
    rules and start tapes, those of published agents over training seeds. Where no published agent
    sat the exam, bundles stand beside the bounds alone. With `out`, a file that ends in svg, pdf or
    png is written too.
    """
    if not bundles:
        raise ValueError("name a bundle to draw")
    if out is not None:
        one_of("kind of figure", Path(out).suffix.removeprefix("."), ENDINGS)
    played = [bundle.verify(Path(path)) for path in bundles]
    exam = played[0].exam
    if any(_kind(other.exam) != _kind(exam) for other in played):
        raise ValueError("the bundles are of different exams: draw them apart")
    kinds = by_stratum.strata_by_rule(exam)
    rules = np.array([not kinds or kinds[rule] == HEADLINE for rule in exam.rules.tolist()])
    drawn: dict[str, Dots] = {
        name: _of_bundles([each for each in played if each.about["policy"] == name], rules)
        for name in dict.fromkeys(str(each.about["policy"]) for each in played)
    }
    contest = _published(exam, track)
    if contest is not None:
        drawn |= _of_contest(contest, rules)
    bound = bounds.bounds_by_stratum(exam)
    levels = {
        "memoryless": bound.memoryless,
        "blind ceiling": bound.blind_ceiling,
        "exact ceiling": exam.ceilings(exam.optimal_steps()),
    }
    references = {
        name: float(level[rules].mean())
        for name, level in levels.items()
        if np.isfinite(level[rules]).all()
    }
    what = f"strict success on {HEADLINE} rules" if kinds else "strict success"
    drawing = figures.dots(drawn, x=what, references=references)
    if out is not None:
        files.write_bytes(Path(out), drawing.render(Path(out).suffix.removeprefix(".")))
    return drawing.figure


def _kind(exam: Exam) -> dict[str, object]:
    """All of an exam's identity but its sides."""
    sides = ("split", "train", "test")
    return {key: value for key, value in exam.identity.items() if key not in sides} | {
        "rules": exam.rules.tolist()
    }


def _published(exam: Exam, track: str) -> Contest | None:
    """The published agents of a track that sat an exam."""
    found = contests.read(published.directory(), tracks=(track,), published=True).contests
    return next((contest for contest in found if contest.exam.hash == exam.hash), None)


def _of_bundles(played: Sequence[Bundle], rules: np.ndarray) -> Dots:
    unseen, seen = unseen_and_seen([(each.exam, each.episodes.success) for each in played])
    dots = {}
    for side, success in (("seen", seen), ("unseen", unseen)):
        asked = rules & ~np.isnan(success).any(axis=1)
        if asked.any():
            rng = seeding.generator(0, "plot", side)
            dots[side] = stats.rule_tape_bootstrap(success[asked], rng)
    return dots


def _of_contest(contest: Contest, rules: np.ndarray) -> dict[str, Dots]:
    sides = {"seen": "id", "unseen": "ood"}
    rows = {
        name: np.flatnonzero(rules & (contest.exam.subsets == side)) for name, side in sides.items()
    }
    drawn: dict[str, Dots] = {
        entry.label: {
            name: share_over_seeds(entry.scores["success"][:, members])
            for name, members in rows.items()
            if len(members)
        }
        for entry in findings.ranked(contest)
    }
    for label, baseline in contest.baselines.items():
        drawn[label] = {
            name: float(baseline["success"][members].mean())
            for name, members in rows.items()
            if len(members)
        }
    return drawn
