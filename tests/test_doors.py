"""What `import tapebench` offers."""

import pydoc
import subprocess
import sys

import numpy as np
import pytest

import tapebench
from submissions import FOLDS, submit
from tapebench.runs import evaluation


@pytest.mark.slow
def test_the_package_is_imported_without_jax_and_matplotlib():
    code = "import sys, tapebench; print({'jax', 'matplotlib', 'pandas'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout == "set()\n"


def test_help_names_every_door():
    text = pydoc.plain(pydoc.render_doc(tapebench))
    for name in tapebench.__all__:
        assert f"    {name}(" in text
        assert getattr(tapebench, name).__doc__


def test_an_agent_sits_the_exam_of_a_track():
    outcome = tapebench.evaluate("flip-ones", track="core", split="folds-3", name="mine")
    assert (outcome.policy, outcome.exam.split) == ("mine", "folds-3")
    with pytest.raises(ValueError, match="unknown track"):
        tapebench.evaluate("flip-ones", track="cor")
    with pytest.raises(ValueError, match="not both"):
        tapebench.evaluate("flip-ones", outcome.exam, track="core")


def test_published_results_are_tables_by_name():
    tables = tapebench.published("inference@2")
    table = tables["inference-fps30-main"]
    assert "dqn-mlp" in table.as_columns()["agent"].tolist()
    with pytest.raises(ValueError, match="unknown published track 'fulll'"):
        tapebench.published("fulll")


def test_a_bundle_is_drawn_beside_the_published_agents_of_its_exam(tmp_path):
    exam = evaluation.exam_of("full")
    evaluation.evaluate("flip-ones", exam, name="mine").write_bundle(tmp_path / "mine.tape")
    figure = tapebench.plot(tmp_path / "mine.tape", out=tmp_path / "figure.pdf")
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[0] == "mine"
    assert {"dqn-mlp", "rppo-gru", "flip-ones"} < set(names)
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_bundles_over_folds_are_drawn_as_one_agent_beside_the_bounds(tmp_path):
    paths = submit(tmp_path, "mine")
    figure = tapebench.plot(*paths, track="core")
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["mine"]
    assert len(FOLDS) == len(paths)
    labels = axis.get_legend_handles_labels()[1]
    assert {"seen", "unseen", "blind ceiling"} < set(labels)
    with pytest.raises(ValueError, match="unknown kind of figure"):
        tapebench.plot(*paths, out="figure.gif")
    other = tmp_path / "other.tape"
    tapebench.evaluate("flip-ones", length=8, horizon=4, rules=[0, 30]).write_bundle(other)
    with pytest.raises(ValueError, match="different exams"):
        tapebench.plot(*paths, other)
    assert np.isfinite(axis.get_xlim()).all()
