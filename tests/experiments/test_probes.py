"""A probe tells what a memory holds, no more and no less."""

import jax.numpy as jnp
import numpy as np
import pytest

from tapebench.exam import policy
from tapebench.exam.exam import make_exam
from tapebench.exam.policy import Policy
from tapebench.experiments import probes
from tapebench.physics import space
from tapebench.physics.families import elementary


@pytest.fixture(scope="module")
def exam():
    return make_exam(length=8, horizon=4, split="fps30", episodes=1)


def act(memory, obs, stream):
    return memory, jnp.zeros(len(obs), jnp.int32)


def note(memory, cell):
    return memory


def table(memory):
    return ((memory[:, None] >> jnp.arange(8, dtype=jnp.uint32)) & 1).astype(jnp.float32)


def nothing(memory):
    return jnp.zeros((len(memory), 2))


def holding(recall):
    """A policy that is told the rule, and holds something of it."""
    return Policy("any", lambda rule, num: jnp.asarray(rule), act, recall=recall, note=note)


def test_the_tables_are_those_of_the_physics():
    for rule in (30, 110, 204):
        for case in range(8):
            tape = np.array([case >> 2 & 1, case >> 1 & 1, case & 1] + [0] * 29, np.uint8)
            after = space.unpack(elementary.evolve(space.pack(tape[None]), rule, 32), 32)
            assert after[0, 1] == probes.TABLES[rule, case]


def test_a_memory_that_holds_the_law_tells_it_of_every_rule(exam):
    accuracy = probes.probe_accuracy(holding(table), exam)
    assert accuracy["id"] == [1.0] * 3
    assert min(accuracy["ood"]) > 0.97  # of rules that the probe has not been fitted to


def test_a_memory_that_holds_nothing_tells_nothing(exam):
    accuracy = probes.probe_accuracy(holding(nothing), exam)
    for side in ("id", "ood"):
        assert accuracy[side] == pytest.approx([0.5] * 3, abs=0.06)


def test_what_remembers_nothing_has_no_memory_to_ask(exam):
    with pytest.raises(ValueError, match="random remembers nothing"):
        probes.probe_accuracy(policy.random(exam.task), exam)


def test_an_entry_that_is_as_likely_as_not_counts_half():
    belief = np.zeros((2, 256))
    belief[0, 0b00000001] = 1.0
    belief[1, [0b00000001, 0b00000011]] = 0.5
    tables = probes.TABLES[[1, 1]]
    right = probes._right(belief, tables)
    assert right[0].tolist() == [1.0] * 8
    assert right[1].tolist() == [1.0, 0.5] + [1.0] * 6
