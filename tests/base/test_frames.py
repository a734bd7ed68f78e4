import sys
from types import ModuleType

import numpy as np
import pytest

from tapebench.base import frames
from tapebench.report.tables import Column, Row, Table
from tapebench.stats import Interval


@pytest.fixture(params=["pandas", "polars"])
def library(request, monkeypatch):
    """A library whose frames are what they are made of."""
    module = ModuleType(request.param)
    module.DataFrame = dict
    monkeypatch.setitem(sys.modules, request.param, module)
    return request.param


def frame(library, table):
    return getattr(table, f"to_{library}")()


def test_a_table_becomes_a_frame_with_its_intervals_in_three_columns(library):
    rows = (
        Row(("mine", Interval(0.5, 0.4, 0.6), 3)),
        Row(("bound", 0.9, 4), "ceiling"),
        Row(("other", None, 5)),
    )
    table = Table("x", "X", "", (Column("agent"), Column("success"), Column("n")), rows)
    made = frame(library, table)
    assert made["kind"] == ["agent", "ceiling", "agent"]
    assert made["agent"] == ["mine", "bound", "other"]
    np.testing.assert_array_equal(made["success"], [0.5, 0.9, np.nan])
    np.testing.assert_array_equal(made["success low"], [0.4, np.nan, np.nan])
    assert made["n"].dtype == np.int64


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_library_that_is_not_there_is_named_in_one_line(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"^{name} is not installed: pip install {name}$"):
        getattr(frames, f"to_{name}")({"x": np.arange(3)})
