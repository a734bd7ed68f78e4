import json

import numpy as np
import pytest

from commands import tape
from tapebench.exam.evaluate import evaluate
from tapebench.exam.exam import make_exam
from tapebench.runs import contexts, evaluation

EXAM = {"length": 6, "horizon": 3, "episodes": 2, "rules": [30, 36, 90, 110, 128, 204]}


def lay_out(root, name, **config):
    path = root / name
    path.mkdir(parents=True)
    spec = {"agent": "someone", "seed": 0, "config": {"width": 8, **config}}
    (path / "spec.json").write_text(json.dumps(spec))
    return path


def test_settings_of_one_agent_are_sorted_by_what_they_are_given(tmp_path):
    paths = [lay_out(tmp_path, f"a{name}", context=name) for name in ("none", "rule")]
    assert list(contexts.sort_by_context(paths)) == ["rule", "none"]
    with pytest.raises(ValueError, match="both given none"):
        contexts.sort_by_context([paths[0], paths[0]])
    wider = lay_out(tmp_path, "wider", context="rule", width=16)
    with pytest.raises(ValueError, match="differ in more than context"):
        contexts.sort_by_context([paths[0], wider])
    with pytest.raises(ValueError, match="does not say what its agent was given"):
        contexts.sort_by_context([paths[0], lay_out(tmp_path, "plain")])


@pytest.mark.slow
def test_the_command_prints_what_lies_between_settings(capsys, tmp_path, monkeypatch):
    players = {"none": "random", "evidence": "flip-ones", "rule": "greedy"}
    paths = {name: lay_out(tmp_path, name, context=name) for name in players}
    monkeypatch.setattr(
        evaluation, "evaluate", lambda path, exam, **_: evaluate(players[path.name], exam)
    )
    options = ["--length", "6", "--horizon", "3", "--episodes", "2"]
    options += ["--rules", "30,36,90,110,128,204"]
    named = [str(path) for path in paths.values()]
    code, out, _ = tape(capsys, "evaluate", *named, *options, "--json")
    assert code == 0
    document = json.loads(out)
    exam = make_exam(**EXAM)
    for side in ("id", "ood"):
        row = document[side]
        success = evaluate("greedy", exam).runs[0].success[exam.rows(side)]
        assert row["rule"] == pytest.approx(success.mean())
        total = sum(gap["mean"] for gap in row["gaps"].values())
        assert total == pytest.approx(row["ceiling"] - row["none"])
        assert np.isfinite(total)
    code, out, _ = tape(capsys, "evaluate", *named, *options)
    assert code == 0
    assert "value of evidence" in out
    code, _, err = tape(capsys, "evaluate", "greedy", "random", *options)
    assert (code, err.count("\n")) == (2, 1)
