"""Labels against what a few lines of plain Python make of the definition."""

import math

import numpy as np
import pytest

from tapebench.datasets import answers
from tapebench.exam.exam import IMPOSSIBLE
from tapebench.physics import exact
from tapebench.physics.families import elementary

LENGTH = 6


def steps_by_hand(rule):
    """Fewest steps from every tape, layer by layer backwards over the table of all transitions."""
    after = [
        [elementary.step(tape, cell, rule, LENGTH) for cell in range(LENGTH)]
        for tape in range(2**LENGTH)
    ]
    steps = {0: 0}
    for step in range(1, 2**LENGTH):
        layer = [
            tape
            for tape in range(2**LENGTH)
            if tape not in steps and any(steps.get(next_) == step - 1 for next_ in after[tape])
        ]
        steps |= dict.fromkeys(layer, step)
    return steps, after


@pytest.mark.parametrize("rule", [0, 30, 60, 90, 110, 204, 255])
def test_optimal_steps_and_cells_are_those_of_a_search_by_hand(rule):
    steps, after = steps_by_hand(rule)
    known = answers.solve((30, rule) if rule > 30 else (rule,), LENGTH)
    for tape in range(2**LENGTH):
        given = np.array([rule]), np.array([tape], np.uint32)
        fewest = steps.get(tape)
        assert known.fewest_steps(*given) == (IMPOSSIBLE if fewest is None else fewest)
        best = [fewest is not None and steps.get(a, -9) == fewest - 1 for a in after[tape]]
        assert known.optimal_cells(*given)[0].tolist() == best


def test_the_lowest_optimal_cell_is_that_of_the_exact_search():
    known = answers.solve((54, 110), 9)
    tapes = np.arange(1, 2**9, dtype=np.uint32)
    for rule in (54, 110):
        steps = exact.steps_to_goal(rule, 9, 2**9)
        cells = known.optimal_cells(np.full(len(tapes), rule), tapes)
        for tape, is_best in zip(tapes.tolist(), cells, strict=True):
            best = exact.best_cell(tape, rule, 9, steps)
            if steps[tape] != exact.UNREACHED:
                assert int(np.flatnonzero(is_best)[0]) == best
            else:
                assert not is_best.any()


def test_the_entropy_counts_the_rules_that_every_transition_allows():
    rules = (0, 4, 12, 30, 54, 90, 110, 150, 204, 232)
    rng = np.random.default_rng(0)
    for rule in rules:
        tapes, cells = [int(rng.integers(1, 2**LENGTH))], []
        for _ in range(4):
            cells.append(int(rng.integers(LENGTH)))
            tapes.append(elementary.step(tapes[-1], cells[-1], rule, LENGTH))
        tape, next_tape = (np.array([part], np.uint32) for part in (tapes[:-1], tapes[1:]))
        states = answers.follow_evidence(tape, np.array([cells]), next_tape, LENGTH)
        left = list(rules)
        for before, cell, after, bits in zip(
            tapes, cells, tapes[1:], answers.entropies(rules)[states[0]], strict=False
        ):
            left = [r for r in left if elementary.step(before, cell, r, LENGTH) == after]
            assert bits == np.float32(math.log2(len(left)))
