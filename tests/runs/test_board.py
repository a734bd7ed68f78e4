import json
import random
import shutil

import numpy as np
import pytest

import fuzz
from commands import tape
from submissions import FOLDS, core_exam, submit
from tapebench.base import files
from tapebench.exam import bundle, evaluate
from tapebench.exam.exam import make_exam
from tapebench.exam.seating import BEFORE, Conditions
from tapebench.runs import board
from tapebench.tasks import folds


@pytest.fixture(autouse=True)
def records(tmp_path_factory, monkeypatch):
    """Where this test keeps what it has checked. Bounds are shared: they take long to compute."""
    place = tmp_path_factory.mktemp("records")
    monkeypatch.setattr(board, "_cache", lambda: place)
    return place


def rows_of(root):
    (standing,) = board.read(root).standings
    return {row.label: row for row in standing.rows}


def refusals(root):
    return {refusal.file: refusal.reason for refusal in board.read(root).refused}


def write_reference(place, name="flip-ones", splits=FOLDS, called=None):
    """What `tools/board.py` writes."""
    place.mkdir(parents=True, exist_ok=True)
    for split in splits:
        outcome = evaluate.evaluate(name, core_exam(split), name=called)
        outcome.write_bundle(place / f"{called or name}-{split}.tape")


def test_figures_are_of_the_fold_that_held_a_rule_out(tmp_path):
    paths = submit(tmp_path, "mine")
    row = rows_of(tmp_path)["mine"]
    unseen, seen = [], []
    kinds = folds.core_strata()
    success = {
        split: bundle.verify(path).episodes.success
        for split, path in zip(FOLDS, paths, strict=True)
    }
    for place, rule in enumerate(core_exam().rules.tolist()):
        if kinds[rule] == "beyond-reflex":
            own = next(split for split in FOLDS if rule in core_exam(split).test)
            unseen.append(success[own][place].mean())
            seen.append(np.mean([success[split][place] for split in FOLDS if split != own]))
    assert row.figures.rules == len(unseen) == 85
    assert row.figures.unseen.mean == pytest.approx(np.mean(unseen))
    assert row.figures.seen == pytest.approx(np.mean(seen))
    assert row.figures.cost.mean == pytest.approx(np.mean(seen) - np.mean(unseen))
    assert not row.unranked
    assert row.made == board.REPLAYED


def test_gaps_are_to_the_bounds_on_the_same_rules(tmp_path):
    submit(tmp_path, "mine")
    (standing,) = board.read(tmp_path).standings
    figures, means = standing.rows[0].figures, standing.as_dict()["bounds"]
    assert figures.above_memoryless == pytest.approx(figures.unseen.mean - means["memoryless"])
    assert figures.below_blind_ceiling == pytest.approx(
        means["blind ceiling"] - figures.unseen.mean
    )
    assert figures.below_ceiling == pytest.approx(means["exact ceiling"] - figures.unseen.mean)


def test_rows_are_in_the_order_of_unseen_success_and_only_whole_ones_are_ranked(tmp_path):
    submit(tmp_path / "a", "whole", policy="any-cell")
    submit(tmp_path / "b", "better")
    submit(tmp_path / "c", "part", splits=FOLDS[:3], seed=2)
    submit(tmp_path / "d", "pooling", seed=3, rows="pools rows")
    submit(tmp_path / "e", "told", seed=4, sees_rule=True)
    submit(tmp_path / "f", "one-for-all", policy="first-one")
    submit(tmp_path / "g", "two-seeds", seed=5)
    submit(tmp_path / "g", "two-seeds", seed=6)
    (standing,) = board.read(tmp_path).standings
    means = [row.figures.unseen.mean for row in standing.rows]
    assert means == sorted(means, reverse=True)
    ranks = {
        row.label: (rank, row.unranked)
        for rank, row in zip(standing.ranks(), standing.rows, strict=True)
    }
    assert ranks["part"] == (None, "3 of 5 folds")
    assert ranks["pooling"] == (None, "pools rows")
    assert ranks["told"] == (None, "saw the rule")
    assert ranks["one-for-all"] == (None, "the same actions in several folds")
    ranked = [name for name, (rank, _) in ranks.items() if rank]
    assert set(ranked) == {"whole", "better", "two-seeds"}
    assert [ranks[name][0] for name in ranked] == [1, 2, 3]
    two = next(row for row in standing.rows if row.label == "two-seeds")
    assert len(two.entries) == 10


def test_what_we_ran_is_known_by_its_actions_and_cannot_be_claimed(tmp_path):
    write_reference(tmp_path / "references")
    submit(tmp_path / "eve", "Flip-Ones ", splits=FOLDS[:1])
    submit(tmp_path / "eve", "blind ceiling", splits=FOLDS[:1], seed=2)
    write_reference(tmp_path / "mallory", splits=FOLDS[:1], called="my-own-invention")
    rows = rows_of(tmp_path)
    assert rows["flip-ones"].made == board.OURS
    assert rows["flip-ones"].is_reference
    assert set(rows) == {"flip-ones"}
    reasons = refusals(tmp_path)
    assert "is the name of a row of ours" in reasons["eve/Flip-Ones -0-folds-0.tape"]
    assert "is the name of a row of ours" in reasons["eve/blind ceiling-2-folds-0.tape"]
    (stolen,) = (reason for file, reason in reasons.items() if file.startswith("mallory"))
    assert stolen == "its actions are those of flip-ones, which we ran ourselves"


def test_a_bundle_that_says_it_was_made_by_us_is_not_believed(tmp_path):
    exam = core_exam()
    episodes = bundle.verify(submit(tmp_path, "x", splits=FOLDS[:1])[0]).episodes
    conditions = Conditions("by us", "independent")
    about = {"policy": "x", "sees_rule": False}
    bundle.write(tmp_path / "x-0-folds-0.tape", episodes, exam, about, conditions)
    assert rows_of(tmp_path)["x"].made == board.REPLAYED


def test_what_is_listed_as_ours_is_what_the_references_do(tmp_path):
    names = {about.name for about in board.listed().values()}
    assert names == {"random", "flip-ones", "memoryless", "bayes-optimal", "mpc", "optimal"}
    for name in ("random", "optimal"):
        write_reference(tmp_path, name, FOLDS[2:3])
    assert {row.made for row in rows_of(tmp_path).values()} == {board.OURS}


def test_duplicates_old_seatings_and_other_exams_are_refused_with_the_reason(tmp_path):
    (path, *_) = submit(tmp_path, "mine")
    shutil.copy(path, tmp_path / "z.tape")
    played = bundle.verify(path)
    about = {**played.about, "policy": "older"}
    bundle.write(tmp_path / "older.tape", played.episodes, played.exam, about, BEFORE)
    other = make_exam(length=8, horizon=4, episodes=2, rules=[0, 30])
    evaluate.evaluate("flip-ones", other).write_bundle(tmp_path / "other.tape")
    (tmp_path / "nothing.tape").write_bytes(b"hello")
    (tmp_path / "folder.tape").mkdir()
    reasons = refusals(tmp_path)
    assert reasons["z.tape"] == f"it has the same actions on the same exam as {path.name}"
    assert "in the order of the rules (seating 1)" in reasons["older.tape"]
    assert "is that of no current track" in reasons["other.tape"]
    assert reasons["nothing.tape"] == "it is not a bundle, or was cut off"
    assert len(reasons) == 4
    assert set(rows_of(tmp_path)) == {"mine"}


def test_an_exam_that_is_not_wanted_is_refused_before_it_is_replayed(tmp_path, monkeypatch):
    other = make_exam(length=8, horizon=4, episodes=2, rules=[0, 30])
    evaluate.evaluate("flip-ones", other).write_bundle(tmp_path / "other.tape")
    monkeypatch.setattr(bundle, "replay", lambda *_: pytest.fail("replayed"))
    assert "no current track" in refusals(tmp_path)["other.tape"]


def test_a_bundle_is_replayed_once_and_again_if_a_byte_changes(tmp_path):
    (path, *_) = submit(tmp_path, "mine", splits=FOLDS[:2])
    first = board.read(tmp_path)
    again = board.read(tmp_path)
    assert (first.checked, again.checked) == (2, 0)
    assert again.as_dict() == first.as_dict()
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    changed = board.read(tmp_path)
    assert (changed.checked, len(changed.refused)) == (1, 1)


def test_a_spoilt_cache_costs_time_and_no_result(tmp_path, records):
    submit(tmp_path, "mine", splits=FOLDS[:1])
    document = board.read(tmp_path).as_dict()
    (kept,) = records.iterdir()
    for text in ("", "{}", "[]", kept.read_text().replace("folds-0", "folds-9"), '{"track": 3}'):
        kept.write_text(text)
        assert board.read(tmp_path).as_dict() == document
    spoilt = files.read_object(kept)
    spoilt["record"]["success"] = "A" + spoilt["record"]["success"][1:]
    kept.write_text(json.dumps(spoilt))
    assert board.read(tmp_path).as_dict() == document


def test_rows_of_one_name_in_two_directories_are_two(tmp_path):
    submit(tmp_path / "a", "mine", seed=1)
    submit(tmp_path / "b", "mine", seed=2)
    submit(tmp_path, "mine (a)", seed=3)
    assert set(rows_of(tmp_path)) == {"mine (a)", "mine (b)", "mine (a)*"}


def test_a_fresh_exam_stands_apart(tmp_path):
    submit(tmp_path, "mine", splits=FOLDS[:1])
    submit(tmp_path, "mine", splits=FOLDS[:1], seed=1, exam="fresh:2027")
    titles = [standing.title for standing in board.read(tmp_path).standings]
    assert titles == ["core", "core, fresh:2027 exam"]


def test_whatever_comes_the_board_goes_on(tmp_path, monkeypatch):
    paths = submit(tmp_path, "sound", splits=FOLDS[:2])
    size = int.from_bytes(paths[0].read_bytes()[:8], "little")
    header = json.loads(paths[0].read_bytes()[8 : 8 + size])
    rest = paths[0].read_bytes()[8 + size :]
    for number in range(12):
        chance = random.Random(number)
        head = json.dumps(fuzz.spoil(header, chance)).encode()
        spoilt = len(head).to_bytes(8, "little") + head + rest
        data = fuzz.spoil_bytes(paths[0].read_bytes(), chance) if number % 2 else spoilt
        (tmp_path / f"{number:03}\x1b[2J.tape").write_bytes(data)
    found = board.read(tmp_path)
    assert {row.label for row in found.standings[0].rows} == {"sound"}
    assert len(found.refused) == 12
    assert all(refusal.reason and refusal.reason.isprintable() for refusal in found.refused)
    assert all(refusal.file.isprintable() for refusal in found.refused)
    monkeypatch.setattr(bundle, "verify", lambda *_: 1 / 0)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "new.tape").write_bytes(b"x")
    assert refusals(tmp_path / "other")["new.tape"] == "it cannot be checked (ZeroDivisionError)"


@pytest.mark.slow
def test_many_bundles_are_checked_in_several_processes(tmp_path):
    for seed in range(10):
        submit(tmp_path, f"agent-{seed}", seed=seed)
    found = board.read(tmp_path)
    assert found.checked == 50
    assert len(found.standings[0].rows) == 10


def test_the_command_writes_page_and_document_and_says_what_it_refuses(capsys, tmp_path):
    (path, *_) = submit(tmp_path / "in", "mine")
    code, out, _ = tape(capsys, "board", "in")
    assert code == 0
    assert "mine" in out
    document = json.loads((tmp_path / "in" / "board" / "board.json").read_text())
    assert [row["rank"] for row in document["standings"][0]["rows"]] == [1]
    shutil.copy(path, tmp_path / "in" / "z.tape")
    code, out, error = tape(capsys, "board", "in", "--out", "site", "--json")
    assert code == 1
    assert json.loads(out) == json.loads((tmp_path / "site" / "board.json").read_text())
    assert json.loads(out)["refused"][0]["file"] == "z.tape"
    assert "refused: z.tape: it has the same actions" in error
    code, _, error = tape(capsys, "board", "nowhere")
    assert (code, error) == (2, "tape: there is no directory nowhere: name one with bundles\n")
