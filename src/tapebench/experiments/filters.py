"""The exact Bayesian filter as a player: what inferring the rule achieves without learning.

It breaks ties at random and needs no training, so its draws take the place of seeds. What it
reaches on the usual exam is shipped for every draw; other exams are played and cached in the
results directory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from tapebench import stats
from tapebench.base import seeding
from tapebench.exam import intervals, seating
from tapebench.exam.exam import SUBSETS, Exam, make_exam
from tapebench.exam.rollout import rollout
from tapebench.experiments.api import Exhibit, Experiment, ExperimentResults, untrained
from tapebench.experiments.planning import SHORT, SURE
from tapebench.planning.belief import BETA, bayes_filter, identify
from tapebench.report.figures import Panel, Picture, Series, lines
from tapebench.report.style import SIDE_NAMES
from tapebench.report.tables import REFERENCE, Cell, Column, Row, Table
from tapebench.stats import Interval

DRAWS = 20
"""Draws of its ties: as many as the paper has seeds."""

BETAS = (BETA, 0.0)
"""Weights of information gain: the paper's, and none."""

SPLITS = ("fps30", "matched30")
"""Splits that the filters are shown on."""

FILE = "filter-L32-H32.json"
"""Their successes, among the package's data."""


@dataclass(frozen=True)
class Watched:
    """A Bayesian filter on an exam: what it did, and what it believed meanwhile."""

    exam: Exam
    success: np.ndarray
    """`[R, E]`."""
    mass: np.ndarray
    """`[R, H + 1]`: probability of the true rule, mean over start tapes."""
    steps: np.ndarray
    """`[R, E]`: steps until that was `SURE`, -1 if it never was."""
    entropy: np.ndarray
    """`[R]`: of the belief at the end, in nats."""
    bits: np.ndarray
    """`[R]`: expected share of the rule's eight bits that the belief has right at the end."""

    def identified(self, rows: np.ndarray) -> float:
        """Share of episodes in which the true rule was identified."""
        return float((self.steps[rows] >= 0).mean())

    def wait(self, rows: np.ndarray) -> float | None:
        """Mean steps until it was identified, where it was."""
        steps = self.steps[rows]
        return float(steps[steps >= 0].mean()) if (steps >= 0).any() else None


CANDIDATE_SETS = ("all", "train")
"""Candidates of a filter: all 256 rules, or those of the training side."""


def watch_filter(results: ExperimentResults, exam: Exam, candidates: str, beta: float) -> Watched:
    """One draw of the filter with a candidate set and a weight of information gain."""

    def compute() -> dict[str, Any]:
        policy = bayes_filter(exam.task, candidates, split=exam.origin, beta=beta)
        identified = identify(policy, exam.task, None, exam.episodes, salt=exam.salt)
        return {
            "success": identified.episodes.success.tolist(),
            "mass": identified.mass.mean(axis=1, dtype=float).tolist(),
            "steps": identified.steps_to(SURE).tolist(),
            "entropy": identified.entropy[..., -1].mean(axis=1, dtype=float).tolist(),
            "bits": identified.bits[..., -1].mean(axis=1, dtype=float).tolist(),
        }

    stored = results.cached(exam, f"bayes-{candidates}-{beta:g}", compute)
    return Watched(exam, **{name: np.array(values) for name, values in stored.items()})


def play_filter(results: ExperimentResults, exam: Exam, candidates: str, beta: float) -> np.ndarray:
    """Success of the same filter in every draw of its ties, `[S, R, E]`: shipped for the usual
    exam, else played and cached."""
    shipped = load_shipped(exam, candidates, beta)
    if shipped is not None:
        return shipped
    stored = results.cached(
        exam,
        f"bayes-{DRAWS}-draws-{candidates}-{beta:g}",
        lambda: pack(play(exam, candidates, beta)),
    )
    return unpack(stored, exam.episodes)


def play(exam: Exam, candidates: str, beta: float) -> np.ndarray:
    """`play_filter`, played here and now."""
    policy = bayes_filter(exam.task, candidates, split=exam.origin, beta=beta)
    return np.array(
        [
            rollout(policy, exam.task, None, exam.episodes, seed=seed, salt=exam.salt).success
            for seed in range(DRAWS)
        ]
    )


def pack(success: np.ndarray) -> list[str]:
    """Successes `[S, R, E]` as hexadecimal digits, a text for each rule."""
    return [np.packbits(of_rule).tobytes().hex() for of_rule in success.swapaxes(0, 1)]


def unpack(texts: Sequence[str], episodes: int) -> np.ndarray:
    """The inverse of `pack`."""
    packed = np.array([np.frombuffer(bytes.fromhex(text), np.uint8) for text in texts])
    bits = np.unpackbits(packed, axis=1, count=DRAWS * episodes).astype(bool)
    return bits.reshape(len(texts), DRAWS, episodes).swapaxes(0, 1)


def load_shipped(exam: Exam, candidates: str, beta: float) -> np.ndarray | None:
    """What of `play_filter` is shipped, else None: nothing is played."""
    shipped, name = _read_shipped(), name_of(candidates, exam.split, beta)
    versions = shipped["exam_version"], shipped["seating"]
    usual = make_exam(
        split=exam.origin, rules=exam.rules.tolist(), episodes=int(shipped["episodes"])
    )
    is_usual = exam.hash == usual.hash and name in shipped["success"]
    if not is_usual or versions != (seeding.EXAM_VERSION, seating.VERSION):
        return None
    return unpack([shipped["success"][name][rule] for rule in exam.rules], exam.episodes)


@cache
def _read_shipped() -> Any:
    return json.loads(resources.files("tapebench").joinpath(f"data/{FILE}").read_text())


def name_of(candidates: str, split: str, beta: float) -> str:
    """A filter in the shipped file. With all rules as candidates it does not depend on the
    split."""
    return f"{candidates if candidates == 'all' else f'{candidates} of {split}'}, beta {beta:g}"


def dump_shipped() -> str:
    """The shipped file's text: a line for each filter on the first split. Minutes of work."""
    exam = make_exam(split=SPLITS[0])
    head = {
        "exam_version": seeding.EXAM_VERSION,
        "seating": seating.VERSION,
        "length": exam.task.length,
        "horizon": exam.task.horizon,
        "episodes": exam.episodes,
        "draws": DRAWS,
    }
    success = {
        name_of(candidates, exam.split, beta): json.dumps(pack(play(exam, candidates, beta)))
        for candidates in CANDIDATE_SETS
        for beta in BETAS
    }
    body = ",\n".join(f'    "{name}": {texts}' for name, texts in success.items())
    return f'{json.dumps(head)[:-1]},\n  "success": {{\n{body}\n  }}\n}}\n'


def over_draws(exam: Exam, success: np.ndarray) -> dict[str, Interval]:
    """Mean success of `[S, R, E]` by side and the drop, with intervals over draws."""
    by_draw = {
        side: success[:, rows].mean(axis=(1, 2)) for side in SUBSETS if len(rows := exam.rows(side))
    }
    spread = {side: intervals.share_over_seeds(values) for side, values in by_draw.items()}
    if len(by_draw) == len(SUBSETS):
        spread["drop"] = intervals.over_seeds(by_draw["id"] - by_draw["ood"])
    return spread


def over_rules(exam: Exam, success: np.ndarray) -> dict[str, Interval]:
    """The same with intervals over rules and start tapes."""
    by_tape = success.mean(axis=0)
    spread = {
        side: stats.rule_tape_bootstrap(by_tape[rows], seeding.generator(0, "references", side))
        for side in SUBSETS
        if len(rows := exam.rows(side))
    }
    whole = drop(exam, by_tape)
    return spread if whole is None else spread | {"drop": whole}


def drop(exam: Exam, success: np.ndarray) -> Interval | None:
    """ID − OOD success of `[R, E]`, where both sides were asked about."""
    seen, held_out = (success[exam.rows(side)].astype(float) for side in SUBSETS)
    if not len(seen) or not len(held_out):
        return None
    return stats.drop_bootstrap(seen, held_out, seeding.generator(0, "references", "drop"))


def show_filter(results: ExperimentResults) -> Exhibit:
    """Both candidate sets, with and without pay for information, on both splits."""
    scale = results.scale
    splits = (scale.split,) if scale.split else (scale.track.split, *SPLITS[1:])
    rows = []
    for split in splits:
        exam = scale.exam(split=split)
        for candidates in CANDIDATE_SETS:
            for beta in BETAS:
                watched = watch_filter(results, exam, candidates, beta)
                success = play_filter(results, exam, candidates, beta)
                by_rule, by_draw = over_rules(exam, success), over_draws(exam, success)
                cells: list[Cell] = [exam.split, candidates, beta]
                for side in SUBSETS:
                    of_side = exam.rows(side)
                    cells += [by_rule.get(side), by_draw.get(side)]
                    cells += (
                        [watched.identified(of_side), float(watched.entropy[of_side].mean())]
                        if len(of_side)
                        else [None, None]
                    )
                rows.append(Row((*cells, by_rule.get("drop"), by_draw.get("drop")), REFERENCE))
    columns = [Column("split"), Column("candidates"), Column("β", digits=2)]
    for side in SUBSETS:
        name = side.upper()
        columns += [Column(f"{name} success"), Column(f"{name} success, draws")]
        columns += [Column(f"{name} identified"), Column(f"{name} entropy", digits=2)]
    columns += [Column("drop", signed=True), Column("drop, draws", signed=True)]
    return Exhibit(
        tables=(
            Table(
                name="bayes-filter",
                title="The Bayesian filter with both candidate sets",
                caption="Flips the cell with the best −E[distance] + β · information gain (in "
                f"nats). Success: mean over {DRAWS} draws of its ties, with its interval over "
                "rules and start tapes, then with that over draws. Identified: episodes of the "
                f"first draw in which the true rule had probability {SURE}; "
                "entropy: of the belief at their end. Where the training rules are the only "
                "candidates, a held-out rule contradicts them all and the belief stays uncertain, "
                "so the expected information gain never shrinks; the filter with β above 0 keeps "
                "seeking it, away from the goal. Intervals are 95%.",
                columns=tuple(columns),
                rows=tuple(rows),
            ),
        )
    )


def _share_over_rules(shares: np.ndarray) -> Interval:
    """Mean of shares with its t interval over rules, which ends at 0 and 1."""
    return stats.within_0_and_1(stats.t_interval(shares))


def show_posterior(results: ExperimentResults) -> Exhibit:
    """The probability of the true rule step by step, at the track's length and on short tapes."""
    scale = results.scale
    exams = [scale.exam()]
    if scale.track.length > SHORT:
        exams.append(scale.exam(length=SHORT, horizon=SHORT, mask=None))
    panels, rows = [], []
    for exam in exams:
        where = f"L = H = {exam.task.length}"
        watched_by_name = {name: watch_filter(results, exam, name, BETA) for name in CANDIDATE_SETS}
        for side in SUBSETS:
            of_side = exam.rows(side)
            if not len(of_side):
                continue
            series = tuple(
                Series(
                    f"candidates: {name}",
                    tuple(map(float, range(watched.mass.shape[1]))),
                    tuple(_share_over_rules(by_rule) for by_rule in watched.mass[of_side].T),
                )
                for name, watched in watched_by_name.items()
            )
            panels.append(Panel(f"{where}, {SIDE_NAMES[side]}", series))
            for name, watched in watched_by_name.items():
                cells = (
                    watched.identified(of_side),
                    watched.wait(of_side),
                    _share_over_rules(watched.mass[of_side, -1]),
                    _share_over_rules(watched.bits[of_side]),
                    stats.t_interval(watched.entropy[of_side]),
                )
                rows.append(Row((where, side.upper(), name, *cells), REFERENCE))
    title = "The probability of the true rule"
    return Exhibit(
        tables=(
            Table(
                name="posterior",
                title="How well the Bayesian filter knows the rule",
                caption=f"β = {BETA}. Identified: episodes in which the true rule had probability "
                f"{SURE}, and after how many steps in those; probability, expected share of the "
                "rule's eight bits that are right, and entropy in nats, all at the end; 95% "
                "t-intervals over rules.",
                columns=(
                    Column(""),
                    Column("side"),
                    Column("candidates"),
                    Column("identified"),
                    Column("after", digits=2),
                    Column("probability"),
                    Column("bits right"),
                    Column("entropy", digits=2),
                ),
                rows=tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                name="posterior",
                title=title,
                caption=f"Belief of the Bayesian filter with β = {BETA}, mean over rules and start "
                "tapes; bands are 95% t-intervals over rules. An episode that is over keeps its "
                "last belief. A rule that is no candidate has probability zero for ever.",
                drawing=lines(panels, x="steps", y="probability", bottom=-0.03, top=1.03),
            ),
        ),
    )


EXPERIMENTS = (
    Experiment(
        name="bayes-filter",
        about="What does inferring the rule achieve, and where does its drop come from?",
        settings=untrained,
        show=show_filter,
        seconds=90.0,
        paper="sec:results, inference-aware baseline",
    ),
    Experiment(
        name="posterior",
        about="How soon is the rule identified, and what if it is not a candidate?",
        settings=untrained,
        show=show_posterior,
        seconds=10.0,
    ),
)
