import numpy as np
import pytest

from tapebench import stats

CEILING = np.array([1.0, 1.0, 0.5, 0.9])
SCORES = {
    "none": [0.2, 0.3, 0.1, 0.2],
    "rule": [0.8, 0.9, 0.5, 0.6],
    "evidence": [0.6, 0.7, 0.5, 0.2],
}


def test_gaps_are_between_neighbours_and_add_up():
    gaps = stats.context_gaps(CEILING, SCORES)
    assert {name: gap.mean for name, gap in gaps.items()} == pytest.approx(
        {
            "control with the law given": 0.15,
            "price of partial knowledge": 0.2,
            "value of evidence": 0.3,
        }
    )
    total = sum(gap.mean for gap in gaps.values())
    assert total == pytest.approx(CEILING.mean() - np.mean(SCORES["none"]))


def test_rules_are_paired():
    """All rules lose the same, so however they differ there is no doubt about it."""
    gap = stats.context_gaps(CEILING, {"rule": CEILING - 0.25})["control with the law given"]
    assert gap.high - gap.low == pytest.approx(0.0, abs=1e-12)


def test_a_gap_over_a_missing_context_says_so():
    scores = {name: SCORES[name] for name in ("rule", "none")}
    gaps = stats.context_gaps(CEILING, scores)
    assert list(gaps) == ["control with the law given", "price of having to find out"]
    assert list(stats.context_gaps(CEILING, {"none": SCORES["none"]})) == ["everything"]


def test_other_contexts_and_other_rules_are_refused():
    with pytest.raises(ValueError, match="unknown context 'rules': use one of rule"):
        stats.context_gaps(CEILING, {"rules": CEILING})
    with pytest.raises(ValueError, match="same rules"):
        stats.context_gaps(CEILING, {"rule": CEILING[:2]})
