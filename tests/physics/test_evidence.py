"""What transitions show of a law, for every family."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tapebench.physics import evidence
from tapebench.physics.families import FAMILIES
from tapebench.physics.space import Space

SHAPES = {1: [(5,), (33,)], 2: [(3, 4)]}
CASES = [
    pytest.param(family, Space(shape), id=f"{name}-{'x'.join(map(str, shape))}")
    for name, family in FAMILIES.items()
    for shape in SHAPES[family.dimensions]
]
of_family_and_space = pytest.mark.parametrize(("family", "space"), CASES)


def transitions(family, space, num=60):
    """Rules, cells in reading order, and what they become."""
    rng = np.random.default_rng([family.entries, *space.shape])
    rules = rng.integers(family.num_rules, size=num, dtype=np.uint32)
    cells = rng.integers(2, size=(num, space.size), dtype=np.uint8)
    codes = family.codes(cells.reshape(num, *space.shape), space).reshape(num, space.size)
    return rules, cells, np.take_along_axis(family.table(rules), codes.astype(int), axis=1)


@of_family_and_space
def test_evidence_is_what_every_rule_agrees_on_that_is_still_possible(family, space):
    rules, cells, after = transitions(family, space)
    shown = evidence.show(evidence.nothing(family, len(rules)), cells, after, family, space)
    for row, rule in enumerate(rules):
        table = {}
        for code, became in zip(
            np.ravel(family.codes(cells[row].reshape(space.shape), space)), after[row], strict=True
        ):
            table[int(code)] = bool(became)
        for entry in range(family.entries):
            assert shown.seen[row, entry] == (entry in table)
            assert shown.value[row, entry] == table.get(entry, False)
            if entry in table:
                assert table[entry] == bool(family.table(np.array([rule]))[0, entry])


@of_family_and_space
def test_evidence_adds_up_and_is_the_same_from_numpy_and_jax(family, space):
    rules, cells, after = transitions(family, space)
    known = evidence.nothing(family, len(rules))
    before = known
    show = jax.jit(lambda known, cells, after: evidence.show(known, cells, after, family, space))
    for _ in range(3):
        known = evidence.show(known, cells, after, family, space)
        compiled = show(jax.tree.map(jnp.asarray, before), jnp.float32(cells), jnp.asarray(after))
        for part, other in zip(known, compiled, strict=True):
            np.testing.assert_array_equal(part, other)
        assert (known.seen >= before.seen).all()
        before = known
        cells = after
        codes = family.codes(cells.reshape(len(rules), *space.shape), space)
        codes = codes.reshape(len(rules), space.size).astype(int)
        after = np.take_along_axis(family.table(rules), codes, axis=1)
    whole = evidence.everything(family, rules)
    assert whole.seen.all()
    np.testing.assert_array_equal(known.value[known.seen], whole.value[known.seen])
    assert not known.value[~known.seen].any()


def test_an_entry_has_the_value_that_was_seen_last():
    family, space = FAMILIES["elementary"], Space((5,))
    cells, zeros, ones = np.zeros((1, 5), np.uint8), np.zeros((1, 5)), np.ones((1, 5))
    known = evidence.show(evidence.nothing(family, 1), cells, ones, family, space)
    assert known.value[0].tolist() == [True] + [False] * 7
    known = evidence.show(known, cells, zeros, family, space)
    assert not known.value.any()
    np.testing.assert_array_equal(known.numbers()[0], [1] + [0] * 15)
