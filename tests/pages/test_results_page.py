"""The page of results says what the numbers say, always the same, and is up to date."""

import re
import shutil
from pathlib import Path

import pytest

from stored_runs import store_run
from tapebench.experiments.unseen import (
    NOTHING_TO_LOSE,
    SKILLED,
    UNDECIDED,
    UnseenCost,
    skill_reading,
)
from tapebench.pages import claims
from tapebench.pages import results as results_page
from tapebench.report import findings
from tapebench.report.contests import KINDS
from tapebench.runs import published, tracks
from tapebench.stats import Comparison, Interval

ROOT = Path(__file__).parents[2]


FULL = tracks.get_track("full")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three agents on both exams of `full`, and what is published of those who need no training."""
    root = tmp_path_factory.mktemp("runs")
    for folder in ("computed", "lines"):
        if (published.directory() / folder).is_dir():  # what was run for a page before is kept
            shutil.copytree(published.directory() / folder, root / folder)
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
    assert "**The drop on `fps30`.** For these very rules, by intervals over seeds " in prose
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
    ("words", "verdict"),
    [
        ([claims.ABOVE, claims.ABOVE], claims.REPRODUCED),
        ([claims.ABOVE, claims.OPEN], claims.OPEN_DIFFERENCE),
        ([claims.ABOVE, claims.BELOW], claims.NOT_REPRODUCED),
        ([claims.OPEN, claims.OPEN], claims.OPEN_DIFFERENCE),
    ],
)
def test_a_claim_about_all_agents_needs_all_of_them(words, verdict):
    assert claims.sign_of_all(words) == verdict


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ([claims.REPRODUCED, claims.REPRODUCED], claims.REPRODUCED),
        ([claims.REPRODUCED, claims.OPEN_DIFFERENCE], claims.OPEN_DIFFERENCE),
        ([claims.REPRODUCED, claims.NOT_REPRODUCED], claims.NOT_REPRODUCED),
    ],
)
def test_a_claim_is_judged_on_every_split(verdicts, verdict):
    assert claims.overall(verdicts) == verdict


def test_an_order_that_agrees_in_5_of_25_pairs_is_not_reproduced():
    assert claims.verdict_on_order(5, 20) == claims.NOT_REPRODUCED
    assert claims.verdict_on_order(25, 0) == claims.REPRODUCED
    assert claims.verdict_on_order(20, 5) == claims.OPEN_DIFFERENCE


def unseen_cost(mean, reading, half=0.01):
    cost = Interval(mean, mean - half, mean + half)
    return UnseenCost(cost, cost, Interval(0.4, 0.3, 0.5), reading)


def test_a_cost_near_zero_without_skill_is_printed_as_nothing_to_lose():
    costs = {"dqn-mlp": unseen_cost(0.001, NOTHING_TO_LOSE), "x": unseen_cost(0.002, UNDECIDED)}
    longer = {"rppo-cells": unseen_cost(0.031, SKILLED)}
    sentence = claims.about_costs(costs, longer)
    skilled, idle = sentence.index("`rppo-cells`"), sentence.index("`dqn-mlp`")
    assert skilled < idle
    assert "`dqn-mlp` (costs +0.001 to +0.001: nothing to lose)" in sentence
    assert "an unseen rule costs it +0.031 [+0.021, +0.041]" in sentence
    assert "skill is undecided for `x` (costs" in sentence


@pytest.mark.parametrize(
    ("mean", "reading", "verdict"),
    [
        (0.001, NOTHING_TO_LOSE, claims.OPEN_DIFFERENCE),
        (0.001, SKILLED, claims.NOT_REPRODUCED),
        (0.031, SKILLED, claims.OPEN_DIFFERENCE),
    ],
)
def test_only_an_agent_with_skill_can_speak_against_a_cost_of_unseen_rules(mean, reading, verdict):
    finding, conclusion = claims.unseen_alone({"dqn-mlp": unseen_cost(mean, reading)}, {})
    assert conclusion == verdict
    assert f"{reading}: 1 of 1" in finding


@pytest.mark.parametrize(
    ("ends", "reading"),
    [
        ([(0.2, 0.3), (0.2, 0.3)], SKILLED),
        ([(0.2, 0.3), (0.05, 0.3)], UNDECIDED),
        ([(0.0, 0.05), (0.0, 0.05)], NOTHING_TO_LOSE),
    ],
)
def test_skill_is_success_above_blind_play_with_every_split(ends, reading):
    success = [Interval(sum(pair) / 2, *pair) for pair in ends]
    assert skill_reading(success, [0.1, 0.1]) == reading


def test_contrasts_stay_within_one_kind_of_network():
    for agent, other, _ in claims.CONTRASTS:
        networks = [label.rsplit("-", 1)[1] for label in (agent, other)]
        assert len({KINDS[network] for network in networks}) == 1
        assert "automata" not in agent + other


def test_comparisons_of_a_question_are_corrected_together():
    difference = Interval(0.02, 0.01, 0.03)
    tests = {f"pair {n}": {"ood": Comparison(difference, 2.0, 8.0, 0.02)} for n in range(3)}
    assert claims.about_pairs(tests).count("(open, p = 0.060)") == 3
    assert "(better, p = 0.020)" in claims.about_pairs({"pair": tests["pair 0"]})


def test_the_limits_count_the_mirror_images_of_the_split():
    assert any(line.startswith("15 of the 30 held-out rules") for line in claims.limits())


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
