"""The page of results says what the numbers say, always the same, and is up to date."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from stored_runs import store_run
from tapebench.pages import claims
from tapebench.pages import results as results_page
from tapebench.report import findings
from tapebench.runs import published, tracks
from tapebench.stats import Interval

ROOT = Path(__file__).parents[2]


FULL = tracks.get_track("full")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three agents on both exams of `full`, and what is published of those who need no training."""
    root = tmp_path_factory.mktemp("runs")
    shutil.copytree(published.directory() / "computed", root / "computed")
    for split in results_page.SPLITS:
        for name, seeds in (("first-one", 2), ("any-one", 2), ("any-cell", 3)):
            for seed in range(seeds):
                exam = FULL.exam(split=split)
                store_run(root, name, seed, experiment="full", exam=exam, last=1)
    return root


@pytest.mark.slow
def test_sentences_follow_from_the_intervals(runs, tmp_path, monkeypatch):
    contrasts = (("any-one", "any-cell", "eyes"), ("first-one", "dqn", "nothing"))
    monkeypatch.setattr(claims, "CONTRASTS", contrasts)
    (tmp_path / "docs").mkdir()
    results_page.main([str(runs)], tmp_path)
    text = (tmp_path / "docs" / "results.md").read_text()
    prose = " ".join(text.split())
    name = "`(first|any)-one`"
    assert re.search(f"compared with `random` \\(0.055\\), better: {name}(,| and) {name}", prose)
    assert "20 start tapes each, 3 seeds (any-one 2, first-one 2). Not finished: dqn," in prose
    assert "The exact ceiling drops by +0.131" in prose
    assert "**The drop on `fps30`.** Success on held-out rules is" in prose
    assert "**Compared with `random`** (ID 0.055, OOD 0.077), on both sides " in prose
    assert "**Effects of additions.** Better: eyes (any-one − any-cell)." in prose
    assert "**Effect of memory.**" not in prose
    assert (
        "**Failed runs**, with less than half the ID success of their agent's median: none."
        in prose
    )
    rows = [line for line in text.splitlines() if line.startswith("| eyes |")]
    assert [row.split(" | ")[-1] for row in rows] == ["better |"] * 4
    assert "| nothing |" not in text
    assert "Does the drop survive matching?" in text
    pictures = [
        draw(contest)
        for contest in results_page.contests(runs).values()
        for draw in (findings.success_picture, findings.curve_picture)
    ]
    for picture in pictures:
        assert f"(results/{picture.name}.svg)" in text
        assert (tmp_path / "docs" / "results" / f"{picture.name}.svg").read_bytes() == picture.svg
    assert {picture.name for picture in pictures} == {
        path.stem for path in (tmp_path / "docs" / "results").iterdir()
    }
    assert [picture.name for picture in pictures] == [
        f"full-{split}-{what}" for split in ("fps30", "matched30") for what in ("success", "curves")
    ]


@pytest.mark.parametrize(
    ("low", "high", "seeds", "word"),
    [
        (0.1, 0.3, 2, "above"),
        (-0.3, -0.1, 2, "below"),
        (-0.1, 0.1, 2, "open"),
        (0.0, 1.0, 2, "open"),
        (1.0, 1.0, 2, "above"),
        (1.0, 1.0, 1, "open"),
    ],
)
def test_a_word_is_used_only_where_the_interval_leaves_no_doubt(low, high, seeds, word):
    words = {"above": claims.ABOVE, "below": claims.BELOW, "open": claims.OPEN}
    assert claims.against(Interval((low + high) / 2, low, high), 0.0, seeds) == words[word]


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(0.1, 0.2), (0.3, 0.4)], claims.HOLDS),
        ([(0.1, 0.2), (-0.3, 0.4)], claims.MIXED),
        ([(0.1, 0.2), (-0.4, -0.3)], claims.FAILS),
        ([(-0.1, 0.2), (-0.3, 0.4)], claims.OPEN_DIFFERENCE),
    ],
)
def test_a_claim_about_all_agents_needs_all_of_them(intervals, verdict):
    by_agent = {str(number): Interval(0.0, *ends) for number, ends in enumerate(intervals)}
    entries = [SimpleNamespace(agent=agent, seeds=range(5)) for agent in by_agent]
    assert claims.sign_of_all(entries, by_agent, "a drop")[1] == verdict


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((0.01, 0.02), "does not hold"), ((0.01, 0.03), "in part"), ((0.03, 0.03), "open")],
)
def test_unseen_laws_explain_a_drop_if_they_cost_as_much(ends, verdict):
    entries = [SimpleNamespace(agent=name) for name in ("dqn", "ppo", "rad")]
    costs = {
        name: Interval(0.0, -high, high) for name, high in zip(("dqn", "ppo"), ends, strict=True)
    }
    *_, here, conclusion = claims.law_alone(None, entries, costs)
    assert conclusion == verdict
    assert here.endswith("of 2")
    sentence = claims.about_costs(costs, {})
    assert f"none ends above +{max(ends):.3f}" in sentence
    assert "5,000,000" not in sentence
    sentence = claims.about_costs(costs, {"rppo, cells": Interval(0.1, 0.0, 0.2)})
    assert sentence.endswith("After 5,000,000 steps: `rppo, cells` +0.100 [+0.000, +0.200].")
    assert f"none ends above +{max(ends):.3f}" in sentence


def test_the_order_of_two_agents_counts_where_both_tables_tell_them_apart():
    low, high, between = Interval(0.1, 0.0, 0.2), Interval(0.6, 0.5, 0.7), Interval(0.3, 0.1, 0.6)
    assert claims.apart(high, low) == 1
    assert claims.apart(low, high) == -1
    assert claims.apart(between, high) == claims.apart(between, low) == 0


def test_verdicts_that_are_alike_stand_together():
    answers = [("better", "a"), ("open", "b"), ("better", "c")]
    assert claims.grouped(answers) == "Better: a, c; open: b"


def test_without_runs_there_is_no_page(tmp_path):
    with pytest.raises(SystemExit, match="no runs of the track full"):
        results_page.main([str(tmp_path)], tmp_path)


@pytest.mark.slow
def test_the_pages_are_up_to_date():
    text, pictures = results_page.results_page(published.directory())
    assert (ROOT / results_page.PAGE).read_text() == text, "run: python tools/results_page.py"
    for picture in pictures:
        assert (ROOT / results_page.PICTURES / f"{picture.name}.svg").read_bytes() == picture.svg
    assert (ROOT / results_page.PAPER).read_text() == results_page.paper_page(published.directory())
