import numpy as np
import pytest

from tapebench.physics import exact, switching
from tapebench.physics.families import elementary


def forward_steps(tape, spans, length, goal):
    """Fewest steps by trying every sequence of flips, time by time."""
    acting = [rule for rule, updates in spans for _ in range(updates)]
    tapes = {tape}
    for taken, rule in enumerate(acting):
        if goal in tapes:
            return taken
        tapes = {
            elementary.step(before, c, rule, length) for before in tapes for c in range(length)
        }
    return len(acting) if goal in tapes else exact.UNREACHED


@pytest.mark.parametrize(
    ("rules", "switches", "horizon", "length", "goal"),
    [
        ((30, 110), (2,), 4, 6, 0),
        ((45, 30), (3,), 4, 6, 0),
        ((204, 255), (2,), 5, 5, 0),
        ((0, 90), (1,), 3, 5, 0b01101),
        ((90, 204, 30), (1, 3), 5, 5, 0),
        ((18, 60, 18, 110), (1, 2, 3), 4, 6, 0b000111),
    ],
)
def test_backward_search_finds_what_forward_search_finds(rules, switches, horizon, length, goal):
    spans = switching.spans(rules, switches, horizon)
    expected = [forward_steps(tape, spans, length, goal) for tape in range(2**length)]
    assert switching.steps_under_switches(spans, length, goal).tolist() == expected


@pytest.mark.parametrize("rule", [30, 45, 90, 110, 204])
def test_a_rule_that_is_followed_by_itself_has_its_usual_ceiling(rule):
    spans = switching.spans((rule, rule), (3,), 7)
    np.testing.assert_array_equal(
        switching.steps_under_switches(spans, 9), exact.steps_to_goal(rule, 9, 7)
    )


def test_a_rule_without_a_way_is_saved_by_the_next_and_lost_by_the_one_before():
    """Rule 255 never makes a zero, rule 0 makes nothing else."""
    ceilings = switching.ceilings_by_sequence((0, 255), (2,), 6, 4)
    assert ceilings[255, 0].histogram == (1, 0, 0, 63)
    assert ceilings[0, 255].histogram == (1, 63)
    assert switching.ceilings_by_sequence((255, 51), (2,), 6, 2 + 1)[51, 255].solvable < 1


def test_all_sequences_that_change_are_there():
    ceilings = switching.ceilings_by_sequence((4, 30, 110), (1, 2), 4, 3)
    assert len(ceilings) == switching.count_sequences(3, 2) == 12
    assert all(a != b != c for a, b, c in ceilings)
    with pytest.raises(ValueError, match="name fewer rules"):
        switching.ceilings_by_sequence(range(256), (1, 2), 4, 4)
    with pytest.raises(ValueError, match="up to length 16, not 17"):
        switching.ceilings_by_sequence((4, 30), (1,), 17, 4)
