import importlib
import pkgutil
from typing import get_type_hints

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation

import shape_checks
import tapebench
from tapebench.physics import bayes, space
from tapebench.physics.families import elementary


def test_another_shape_or_type_than_is_annotated_is_refused_in_the_tests():
    assert space.to_int(np.array([5], np.uint32)) == 5
    for wrong in (np.zeros((2, 1), np.uint32), np.zeros(1, np.int64), [5]):
        with pytest.raises(BeartypeCallHintViolation):
            space.to_int(wrong)


def test_arrays_that_do_not_go_together_are_refused_in_the_tests():
    tapes = np.zeros((4, 1), np.uint32)
    assert elementary.step(tapes, np.zeros(4, int), 30, 8).shape == (4, 1)
    with pytest.raises(BeartypeCallHintViolation):
        elementary.step(tapes, np.zeros(3, int), 30, 8)


def test_so_are_they_in_a_dataclass():
    ring = vars(bayes.make_ring(4))
    assert bayes.Ring(**ring).home == 0
    with pytest.raises(BeartypeCallHintViolation):
        bayes.Ring(**{**ring, "sizes": ring["sizes"][1:]})


def test_every_annotation_names_what_there_is():
    """A name that type checkers alone know of would fail where a function is first called."""
    for module in pkgutil.walk_packages(tapebench.__path__, "tapebench."):
        if shape_checks.is_checked(module.name):
            importlib.import_module(module.name)
    assert len({function.__module__ for function in shape_checks.WRAPPED}) > 8
    for function in shape_checks.WRAPPED:
        get_type_hints(function, include_extras=True)
