import json

import pytest

from tapebench.runs import tuning
from tapebench.runs.tuning import Search
from tapebench.tasks import folds, splits

SPACE = {"learning_rate": (1e-3, 2e-3), "discount": (0.9, 1.0), "epochs": (4, 10)}


def search(trials=8, rows=None, **changes):
    fields = {
        "agent": "ppo",
        "fixed": {"network": "conv"},
        "first": {"learning_rate": 2e-3, "discount": 0.9, "epochs": 10},
        "space": SPACE,
        "steps": 10_000,
    }
    return Search(**fields | changes, trials=trials, rows=rows or {})


def row(seed, success, paid=0.0):
    return {
        "seed": seed,
        "beyond-reflex": success,
        "return": paid,
        "validation": success,
        "training": success,
        "seconds": 2.0,
    }


def pretend(monkeypatch, quality):
    """Runs that take no time: `quality` says how good a trial is. Returns what was run."""
    made = []

    def make(specs, root, workers, change):
        for spec in specs:
            made.append(spec)
            change(str(spec.id), "done", "")

    def read(spec, root):
        return row(spec.seed, quality(spec.options))

    monkeypatch.setattr(tuning, "_make", make)
    monkeypatch.setattr(tuning, "read_run", read)
    monkeypatch.setattr(tuning.sweep, "missing", lambda specs, root: list(specs))
    return made


def by_learning_rate(options):
    return 100 * options.get("learning_rate", 0.002) + 0.1 * options.get("discount", 0.9)


def test_a_third_goes_on_to_twice_the_seeds():
    assert tuning.rungs(27) == [(27, 2), (9, 4), (3, 8)]
    assert tuning.rungs(5) == [(5, 2), (2, 4), (1, 8)]
    assert tuning.num_runs(27) == 27 * 2 + 9 * 2 + 3 * 4


@pytest.mark.parametrize("seconds", [7.0, 60.0, 240.0])
def test_there_are_as_many_trials_as_there_is_time_for(seconds):
    trials = tuning.affordable(seconds, 1.5)
    assert tuning.num_runs(trials) * seconds <= 1.5 * 3600 < tuning.num_runs(trials + 1) * seconds


def test_the_first_trial_is_what_there_was_and_none_comes_twice():
    options = search(trials=100).options()
    assert options[0] == {"network": "conv", **search().first}
    assert all(each["network"] == "conv" for each in options)
    combinations = [tuple(each[name] for name in SPACE) for each in options]
    assert len(set(combinations)) == len(combinations)
    assert len(options) == 8
    assert search(trials=3).options() == options[:3]


def test_the_first_trial_need_not_be_of_the_space():
    options = search(trials=100, first={"epochs": 10}, space={"epochs": (3, 5)}).options()
    assert [each["epochs"] for each in options] in ([10, 3, 5], [10, 5, 3])


def test_who_tunes_is_judged_on_rules_of_no_result_each_piece_in_turn():
    specs = [search().spec({"network": "conv"}, seed) for seed in range(8)]
    examined = {rule for name in folds.NAMES for rule in splits.load(name).test}
    for spec in specs:
        split = splits.load(spec.split)
        assert spec.split == f"folds-tuning-{spec.seed % 5}"
        assert not examined & {*split.train, *split.test}
        assert set(spec.exam.rules.tolist()) == {*split.train, *split.test}
    assert len({str(spec.id) for spec in specs}) == 8


def test_the_best_go_on_and_equals_are_told_apart_by_what_they_were_paid():
    rows = {
        0: [row(0, 0.5, -2.0), row(1, 0.5, -2.0)],
        1: [row(0, 0.4), row(1, 0.6)],
        2: [row(0, 0.9)],
        3: [row(0, 0.7), row(1, 0.7), row(2, 0.0)],
    }
    ordered = search(rows=rows)
    # Trial 2 has no second seed yet, and the third of trial 3 is of a later rung.
    assert ordered.order(2) == [3, 1, 0]
    assert ordered.order(4) == []


def test_a_search_makes_every_rung_and_keeps_what_is_best(monkeypatch, tmp_path):
    made = pretend(monkeypatch, by_learning_rate)
    states = []
    done = tuning.run(search(), tmp_path, lambda now: states.append(now.document()), tell=str)
    assert len(made) == tuning.num_runs(8) == len(states)
    (best,) = done.order(8)
    quality = [by_learning_rate(options) for options in done.options()]
    assert quality[best] == max(quality)
    assert sorted(len(rows) for rows in done.rows.values()) == [2, 2, 2, 2, 2, 4, 4, 8]


@pytest.mark.parametrize("after", [1, 5, 17, 23])
def test_an_interrupted_search_goes_on_from_its_document(monkeypatch, tmp_path, after):
    pretend(monkeypatch, by_learning_rate)
    whole = tuning.run(search(), tmp_path, lambda now: None, tell=str).document()
    documents = []

    def stop(now):
        documents.append(json.dumps(now.document()))
        if len(documents) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuning.run(search(), tmp_path, stop, tell=str)
    made = pretend(monkeypatch, by_learning_rate)
    left = tuning.from_document(json.loads(documents[-1]))
    assert tuning.run(left, tmp_path, lambda now: None, tell=str).document() == whole
    assert len(made) == tuning.num_runs(8) - after


def test_a_search_that_gets_more_time_keeps_what_it_found(monkeypatch, tmp_path):
    pretend(monkeypatch, by_learning_rate)
    space = {**SPACE, "minibatches": (4, 8)}
    first = {**search().first, "minibatches": 8}
    short = search(trials=3, space=space, first=first)
    done = tuning.run(short, tmp_path, lambda now: None, tell=str)
    made = pretend(monkeypatch, by_learning_rate)
    assert tuning.extend(done, hours=0.0).trials == 3
    longer = tuning.extend(done, hours=tuning.num_runs(4) * 2.0 / 3600)
    assert longer.trials == 4
    once_more = tuning.run(longer, tmp_path, lambda now: None, tell=str)
    assert once_more.options()[:3] == done.options()
    assert len(made) == sum(map(len, once_more.rows.values())) - tuning.num_runs(3)


def test_a_document_whose_trials_are_drawn_otherwise_is_not_gone_on_with():
    document = search(rows={1: [row(0, 0.5)]}).document()
    assert tuning.from_document(document).document() == document
    document["trials"][0]["options"] = {"network": "conv", "epochs": 7}
    with pytest.raises(ValueError, match="trial 1 of ppo had other options"):
        tuning.from_document(document)


def test_agents_without_a_space_are_told_to_name_one():
    with pytest.raises(ValueError, match=r"the Config of examples\.reinforce has no SEARCH"):
        tuning.search_space("examples.reinforce")


@pytest.mark.slow
def test_a_small_search_from_its_beginning(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "PROBES", 1)
    fixed = {"network": "mlp", "width": 8, "depth": 1}
    begun = tuning.begin("ppo", fixed, tmp_path, steps=10_000, hours=1e-4, workers=1)
    assert begun.trials == 1
    told = []
    done = tuning.run(begun, tmp_path, lambda now: None, workers=1, tell=told.append)
    (rows,) = done.rows.values()
    assert [each["seed"] for each in rows] == list(range(8))
    for each in rows:
        assert 0 <= each["beyond-reflex"] <= 1
        assert each["return"] < 0 < each["seconds"]
    assert len({each["training"] for each in rows}) > 1
    again = tuning.from_document(json.loads(json.dumps(done.document())))
    told.clear()
    tuning.run(again, tmp_path / "elsewhere", lambda now: None, workers=1, tell=told.append)
    assert all("0 runs to make" in line for line in told)
