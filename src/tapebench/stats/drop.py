"""The drop from rules trained on to held-out ones, taken apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tapebench.stats.intervals import Interval, mean_intervals
from tapebench.stats.tables import NEGLIGIBLE, check, per_rule, seed_mean


@dataclass(frozen=True)
class Side:
    """The results of one agent on one rule set, and what is known of its rules."""

    scores: np.ndarray
    """Success, `[S, R]`."""
    ceilings: np.ndarray
    """Exact ceilings, `[R]`."""
    kinds: np.ndarray
    """Types, str `[R]`."""

    def __post_init__(self) -> None:
        scores = check(self.scores, "scores", axes=2)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "ceilings", per_rule(self.ceilings, scores, "ceilings"))
        object.__setattr__(self, "kinds", per_rule(self.kinds, scores, "types", str))

    @property
    def levels(self) -> np.ndarray:
        """Whether a rule's ceiling is `none`, `partial` or `full`."""
        is_none, is_full = self.ceilings < NEGLIGIBLE, self.ceilings > 1 - NEGLIGIBLE
        return np.select([is_none, is_full], ["none", "full"], "partial")


@dataclass(frozen=True)
class Stratum:
    """Rules of one type and ceiling level on both sides; nan where a side has none of them."""

    kind: str
    level: str
    """Of the ceiling: `none`, `partial` or `full`."""
    rules_id: int
    rules_ood: int
    success_id: float
    success_ood: float
    expected_ood: float
    """Success on the held-out rules with the skill shown on seen ones."""
    basis: str
    """Where that skill was read: on seen rules of this `type`, of this `level`, or on `all`."""
    composition: float
    """This stratum's part of the drop's composition; the strata sum to it."""
    rest: float
    """This stratum's part of the rest of the drop; the strata sum to it."""


@dataclass(frozen=True)
class Drop:
    """The ID–OOD drop and its two parts, which add up to it."""

    total: Interval
    composition: Interval
    """What an equally skilled agent would drop, because the held-out rules are others."""
    rest: Interval
    """What is left: less skill on held-out rules than on seen rules of the same stratum."""
    strata: tuple[Stratum, ...]


def decompose_drop(seen: Side, held_out: Side, rng: np.random.Generator) -> Drop:
    """Split mean(ID) - mean(OOD) into what the rule sets explain and the rest.

    Two rule sets differ in types and in ceilings, so even an agent that generalises perfectly
    scores differently on them. Rules are put into strata, type × ceiling level. What the agent
    would reach on the held-out rules of a stratum is read from the seen ones: their success times
    the ratio of the mean ceilings. With `expected` the mean of that over all held-out rules,

        composition = mean(ID) - expected        rest = expected - mean(OOD)

    which is the decomposition of Kitagawa and of Oaxaca and Blinder with ID as the standard. A
    stratum without seen rules borrows the skill of all seen rules of its ceiling level, or else of
    all: the row's `basis` says so, and such rows deserve suspicion.

    Limits. The rest is no pure measure of generalisation: rules differ in difficulty within a
    stratum too, and with 30 held-out rules that chance is large. The split depends on the standard
    (OOD's skill on ID's mix would give other parts). The intervals resample seeds, the same ones
    for all three, and take both rule sets as given.
    """
    if len(seen.scores) != len(held_out.scores):
        raise ValueError(
            f"the sides have {len(seen.scores)} and {len(held_out.scores)} seeds: use the same ones"
        )
    keys_id = list(zip(seen.kinds.tolist(), seen.levels.tolist(), strict=True))
    keys_ood = list(zip(held_out.kinds.tolist(), held_out.levels.tolist(), strict=True))
    strata = []
    expected = np.zeros(len(seen.scores))
    for kind, level in sorted({*keys_id, *keys_ood}):
        inside = np.array([key == (kind, level) for key in keys_id])
        outside = np.array([key == (kind, level) for key in keys_ood])
        basis, like = "type", inside
        if not like.any():
            basis, like = "level", seen.levels == level
        if not like.any():
            basis, like = "all", np.full(len(inside), True)
        reached = _carry_over(seen, like, held_out, outside)
        share_id, share_ood = inside.mean(), outside.mean()
        on_id, on_ood = _mean_where(seen, inside), _mean_where(held_out, outside)
        expected += share_ood * reached
        strata.append(
            Stratum(
                kind=kind,
                level=level,
                rules_id=int(inside.sum()),
                rules_ood=int(outside.sum()),
                success_id=on_id,
                success_ood=on_ood,
                expected_ood=float(reached.mean()) if outside.any() else np.nan,
                basis=basis,
                composition=float(np.nansum([share_id * on_id, -share_ood * reached.mean()])),
                rest=float(np.nansum([share_ood * reached.mean(), -share_ood * on_ood])),
            )
        )
    reached_id, reached_ood = seed_mean(seen.scores), seed_mean(held_out.scores)
    parts = [reached_id - reached_ood, reached_id - expected, expected - reached_ood]
    total, composition, rest = mean_intervals(np.stack(parts, axis=1), rng)
    return Drop(total, composition, rest, tuple(strata))


def _carry_over(
    seen: Side, seen_rules: np.ndarray, held_out: Side, held_out_rules: np.ndarray
) -> np.ndarray:
    """Success `[S]` on `held_out_rules` with the skill shown on `seen_rules` (masks)."""
    success = seen.scores[:, seen_rules].mean(axis=1)
    ceiling = seen.ceilings[seen_rules].mean()
    if ceiling < NEGLIGIBLE or not held_out_rules.any():
        return success
    target = held_out.ceilings[held_out_rules].mean()
    # Exam luck above a small ceiling must not be scaled up beyond what is possible.
    return np.minimum(success * (target / ceiling), np.maximum(success, target))


def _mean_where(side: Side, mask: np.ndarray) -> float:
    return float(side.scores[:, mask].mean()) if mask.any() else np.nan
