"""Statistics that hold: intervals, tests and summaries on tables of results. Imports no JAX.

Scores are `[S]`, or `[S, R]` where a row is one training seed and a column one rule. The seed is
the unit of evidence: all scores of a seed share its luck, so whole rows are resampled, never
cells. Intervals are 95%. Whatever draws takes an `rng`; the same generator gives the same bytes.
"""

from __future__ import annotations

from tapebench.stats.comparisons import (
    Comparison,
    holm,
    pooled_sd,
    power_of,
    probability_of_improvement,
    seeds_needed,
    told_apart,
    welch,
)
from tapebench.stats.contexts import CONTEXTS, context_gaps
from tapebench.stats.drop import Drop, Side, Stratum, decompose_drop
from tapebench.stats.folds import FoldCost, cost_over_folds
from tapebench.stats.intervals import (
    CONFIDENCE,
    FEW,
    RESAMPLES,
    Interval,
    Statistic,
    drop_bootstrap,
    hierarchical_interval,
    paired_interval,
    rule_tape_bootstrap,
    seed_interval,
    t_interval,
    within_0_and_1,
)
from tapebench.stats.summaries import (
    PROTOCOL,
    Profile,
    Reference,
    ceiling_normalised,
    iqm,
    macro_average,
    micro_average,
    optimality_gap,
    oracle_normalised,
    performance_profile,
    solvable_only,
)
from tapebench.stats.tables import NEGLIGIBLE, seed_mean
from tapebench.stats.unseen import Training, cost_of_unseen, drop_over_rules

__all__ = [
    "CONFIDENCE",
    "CONTEXTS",
    "FEW",
    "NEGLIGIBLE",
    "PROTOCOL",
    "RESAMPLES",
    "Comparison",
    "Drop",
    "FoldCost",
    "Interval",
    "Profile",
    "Reference",
    "Side",
    "Statistic",
    "Stratum",
    "Training",
    "ceiling_normalised",
    "context_gaps",
    "cost_of_unseen",
    "cost_over_folds",
    "decompose_drop",
    "drop_bootstrap",
    "drop_over_rules",
    "hierarchical_interval",
    "holm",
    "iqm",
    "macro_average",
    "micro_average",
    "optimality_gap",
    "oracle_normalised",
    "paired_interval",
    "performance_profile",
    "pooled_sd",
    "power_of",
    "probability_of_improvement",
    "rule_tape_bootstrap",
    "seed_interval",
    "seed_mean",
    "seeds_needed",
    "solvable_only",
    "t_interval",
    "told_apart",
    "welch",
    "within_0_and_1",
]
