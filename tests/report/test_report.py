"""The report: numbers that are those of the episodes, a page that is whole, bad input refused."""

import base64
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from commands import tape
from stored_runs import (
    AGENTS,
    EXAM,
    RULES,
    expected,
    finish_run,
    sit,
    store_bundle,
    store_run,
    store_runs,
)
from tapebench import report, stats
from tapebench.base import files
from tapebench.exam import bounds, by_stratum
from tapebench.exam.bundle import verify
from tapebench.exam.exam import make_exam
from tapebench.physics import space
from tapebench.physics.families import elementary
from tapebench.physics.families.life import LIFE
from tapebench.report import contests, findings, moves, page, strata
from tapebench.runs import store
from tapebench.runs.tracks import get_track
from tapebench.stats import Interval
from tapebench.tasks import splits
from tapebench.tasks.universe import ELEMENTARY


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Three agents with three seeds, and episodes of one of them."""
    place = store_runs(tmp_path_factory.mktemp("runs"))
    store_bundle(place / "first.tape")
    return place


@pytest.fixture(scope="module")
def found(root):
    return contests.read(root)


@pytest.fixture(scope="module")
def contest(found):
    return found.contests[0]


def cells(table, name):
    """The row of a table that begins with a name, by column."""
    row = next(row for row in table.rows if row.cells[0] == name)
    return dict(zip([column.name for column in table.columns], row.cells, strict=True))


@pytest.fixture(scope="module")
def on_a_torus(tmp_path_factory):
    """A contest on life-like rules, with episodes of one agent."""
    place = tmp_path_factory.mktemp("torus")
    split = splits.load("life-H6-matched")
    rules = [*split.train[:60:10], *split.test[:60:10]]
    shape = {"family": "life", "shape": (4, 5), "horizon": 6}
    exam = make_exam(split=split, episodes=4, rules=rules, **shape)
    store_runs(place, seeds=2, agents=("first-one", "any-one"), exam=exam)
    store_bundle(place / "first.tape", exam=exam)
    return place


# Reading


@pytest.mark.slow
def test_scores_are_those_of_the_episodes(found, contest):
    assert [each.title for each in found.contests] == ["main on fps30, L = 8, H = 8"]
    assert {entry.agent: entry.seeds for entry in contest.entries} == dict.fromkeys(
        sorted(AGENTS), (0, 1, 2)
    )
    for entry in contest.entries:
        for metric in ("success", "final_distance", "return"):
            np.testing.assert_allclose(
                entry.scores[metric], expected(entry.agent, metric), atol=1e-6
            )


def test_exact_answers_are_those_of_the_exam_and_of_its_episodes(contest):
    np.testing.assert_array_equal(contest.optimal_steps, EXAM.optimal_steps())
    np.testing.assert_allclose(contest.ceilings, (EXAM.optimal_steps() >= 0).mean(axis=1))
    for entry in contest.entries:
        for subset, by_steps in entry.by_steps.items():
            indices = EXAM.rows(subset)
            present = contest.optimal_steps[indices]
            assert sorted(by_steps) == sorted(set(present[present >= 0].tolist()))
            whole = sum(values.mean() * (present == n).sum() for n, values in by_steps.items())
            success = entry.scores["success"][:, indices].mean()
            assert whole == pytest.approx(success * present.size)


def test_only_what_sat_the_same_exam_is_in_one_contest(tmp_path):
    store_run(tmp_path, "first-one", 0)
    store_run(tmp_path, "any-one", 0, experiment="other")
    longer = make_exam(split="fps30", length=10, horizon=8, episodes=6, rules=list(RULES))
    store_run(tmp_path, "any-one", 0, exam=longer)
    found = contests.read(tmp_path)
    assert sorted(len(contest.entries) for contest in found.contests) == [1, 1, 1]
    slugs = [contest.slug for contest in found.contests]
    assert len(set(slugs)) == 3
    assert "other-fps30" in slugs
    said = " ".join(found.missing)
    assert "first-one has one seed, so there is no interval" in said
    assert "baselines of this exam were not measured" in said
    assert "no episodes to watch" in said
    unranked = findings.main_table(found.contests[0])
    assert not any(any(marks) for marks in unranked.marks)


def test_damage_is_said_and_left_out(tmp_path):
    for seed in range(3):
        store_run(tmp_path, "first-one", seed)
    (tmp_path / "main/first-one/fps30/s01/eval.parquet").unlink()
    (tmp_path / "bad.tape").write_bytes(b"junk")
    found = contests.read(tmp_path)
    assert found.contests[0].entries[0].seeds == (0, 2)
    said = " ".join(found.missing)
    assert "eval.parquet is missing" in said
    assert "bad.tape is refused" in said


@pytest.mark.slow
def test_runs_that_are_not_finished_are_listed_and_not_counted(tmp_path):
    for seed in range(10):
        path = store_run(tmp_path, "first-one", seed)
        if seed:
            (path / store.MARKER).unlink()
    found = contests.read(tmp_path)
    assert found.contests[0].entries[0].seeds == (0,)
    said = next(said for said in found.missing if "not finished" in said)
    assert said.startswith("runs that are not finished: main/first-one/fps30/s01, ")
    assert said.endswith(" and 3 more")


def test_agents_trained_on_different_rules_are_told_apart(tmp_path):
    store_run(tmp_path, "first-one", 0)
    store_run(tmp_path, "any-one", 0, trained_on=EXAM.origin.test)
    found = contests.read(tmp_path)
    assert any("trained on different rules" in said for said in found.missing)
    names = {table.name for table in findings.tables(found.contests[0])}
    assert "main-fps30-relatives" not in names
    assert "main-fps30-main" in names


def test_settings_of_experiments_are_counted_and_left_to_them(tmp_path):
    store_run(tmp_path, "any-one", 0, experiment="lite-reward-sparse", track="lite-2")
    (alone,) = contests.read(tmp_path, settings=False).contests
    assert alone.experiment == "lite-reward-sparse"
    store_run(tmp_path, "any-one", 0, experiment="lite", track="lite-2")
    store_run(tmp_path, "any-one", 0, experiment="lite+0123abcd", track="lite-2")
    found = contests.read(tmp_path, settings=False)
    assert {contest.experiment for contest in found.contests} == {"lite", "lite+0123abcd"}
    assert sum("runs that are settings of experiments (1)" in said for said in found.missing) == 1
    assert len(contests.read(tmp_path).contests) == 3


def test_runs_with_other_settings_stand_in_the_contest_where_their_label_tells_them_apart(tmp_path):
    smoke = get_track("smoke")
    for experiment, augment in (("smoke", "shift+flip"), ("smoke+0123abcd", "shift-with-action")):
        for seed in range(2):
            options = {"augment": augment}
            asked = {"experiment": experiment, "options": options, "rules": (4, 30, 90, 204)}
            finish_run(tmp_path, smoke.spec("rad", seed, **asked))
    (contest,) = contests.read(tmp_path).contests
    assert contest.experiment == "smoke"
    assert {entry.label: entry.is_ablation for entry in contest.entries} == {
        "rad-label-shift-conv": True,
        "rad-conv": False,
    }
    assert {entry.network_kind for entry in contest.entries} == {contests.EQUIVARIANT}


def test_runs_of_tracks_that_were_not_asked_for_are_counted(tmp_path):
    store_run(tmp_path, "any-one", 0, experiment="lite", track="lite-2")
    store_run(tmp_path, "any-one", 0, experiment="full+0123abcd", track="full-2")
    found = contests.read(tmp_path, tracks=("full",))
    assert [contest.experiment for contest in found.contests] == ["full+0123abcd"]
    assert any("runs of the track lite@2 (1)" in said for said in found.missing)
    assert not contests.read(tmp_path, tracks=("long",)).contests


def test_two_runs_of_one_name_are_refused(tmp_path):
    for place in ("a", "b"):
        store_run(tmp_path / place, "first-one", 0)
    with pytest.raises(ValueError, match=r"two runs under .* report their directories apart"):
        contests.read(tmp_path)


def test_seeds_made_with_other_settings_are_pointed_out(tmp_path):
    store_run(tmp_path, "first-one", 0)
    path = store_run(tmp_path, "first-one", 1)
    spec = files.read_json(path / "spec.json")
    files.write_json(path / "spec.json", spec | {"trained_on": spec["trained_on"][:-1]})
    store.mark(path)
    assert any("not made with one setting" in said for said in contests.read(tmp_path).missing)


@pytest.mark.parametrize("rule", range(0, 256, 7))
def test_the_nearest_relative_is_the_nearest(rule):
    twins = [rule, elementary.mirror(rule), elementary.complement(rule)]
    twins.append(elementary.mirror(twins[-1]))
    for number, twin in enumerate(twins):
        nearer = set(twins[:number])
        if twin not in nearer:
            assert (
                contests.relation(rule, frozenset({twin}), ELEMENTARY.features)
                == contests.RELATIONS[number]
            )
    strangers = frozenset(set(range(256)) - set(twins))
    assert contests.relation(rule, strangers, ELEMENTARY.features) == "no relative"


# Tables


def test_where_cells_are_hidden_the_table_says_whose_ceiling_it_prints(contest):
    said = "a player who knows the rule and sees every cell"
    assert said not in findings.main_table(contest).caption
    exam = contest.exam
    masked = replace(contest, exam=replace(exam, task=replace(exam.task, hidden=0b10001)))
    assert said in findings.main_table(masked).caption


def test_the_main_table_holds_means_intervals_and_the_paired_drop(contest):
    table = findings.main_table(contest)
    for name in AGENTS:
        row, scores = cells(table, name), expected(name, "success")
        indices = {side: EXAM.rows(side) for side in ("id", "ood")}
        for side in ("id", "ood"):
            values = scores[:, indices[side]].mean(axis=1)
            interval = stats.t_interval(values)
            assert row[f"{side.upper()} success"].mean == pytest.approx(values.mean())
            assert row[f"{side.upper()} success"].high == pytest.approx(min(interval.high, 1))
        drop = scores[:, indices["id"]].mean(axis=1) - scores[:, indices["ood"]].mean(axis=1)
        assert row["drop"].low == pytest.approx(stats.t_interval(drop).low)
        assert row["seeds"] == 3
        assert row["s per run"] == 12.0
    ceiling = cells(table, "exact ceiling")
    assert ceiling["OOD success"] == pytest.approx(contest.ceilings[EXAM.rows("ood")].mean())
    assert ceiling["OOD return"] is None


def test_final_distance_is_the_share_of_failures_times_their_distance(contest):
    table = findings.continuous_table(contest)
    for name in AGENTS:
        row = cells(table, name)
        for side in ("ID", "OOD"):
            indices = EXAM.rows(side.lower())
            runs = [sit(name, 100 * s + n + 2) for s in range(3) for n in range(2)]
            failing = [
                np.concatenate(
                    [r.final_distance[indices][~r.success[indices]] for r in runs[s : s + 2]]
                )
                for s in (0, 2, 4)
            ]
            means = [values.mean() for values in failing]
            assert row[f"{side} E[D | D > 0]"].mean == pytest.approx(np.mean(means), abs=1e-6)


def test_the_parts_of_the_drop_add_up(contest):
    for row in findings.drop_table(contest).rows:
        _, total, composition, rest = row.cells
        assert total.mean == pytest.approx(composition.mean + rest.mean)


def test_every_pair_is_tested_once_a_side_and_corrected_together(contest):
    table = findings.pairwise_table(contest)
    assert len(table.rows) == 3 * 2
    raw, corrected = ([row.cells[column] for row in table.rows] for column in (5, 6))
    np.testing.assert_allclose(corrected, stats.holm(np.array(raw)))
    assert max(corrected) <= 1


def test_types_and_relatives_divide_the_rules(contest):
    kinds = [column.name for column in findings.type_table(contest).columns[1:]]
    assert sum(int(name.split("(")[1].rstrip(")")) for name in kinds) == len(RULES)
    relatives = findings.relation_table(contest)
    assert sum(row.cells[1] for row in relatives.rows) == len(RULES)
    trained = cells(relatives, "trained on itself")
    assert trained["rules"] == len(EXAM.train)
    whole = expected("first-one", "success")[:, EXAM.rows("id")].mean()
    assert trained["first-one"].mean == pytest.approx(whole)


def test_normalised_success_is_against_the_ceiling(contest):
    row = cells(findings.normalised_table(contest), "first-one")
    indices = EXAM.rows("ood")
    success = expected("first-one", "success")[:, indices]
    assert row["OOD of ceiling"].mean == pytest.approx(
        success.mean() / contest.ceilings[indices].mean()
    )
    solvable = contest.ceilings[indices] > stats.NEGLIGIBLE
    assert row["OOD on solvable"].mean == pytest.approx(success[:, solvable].mean())
    assert row["OOD % of mpc"] is None  # there is no planner beside these runs


def test_success_by_stratum_has_what_is_beyond_reflex_first(contest):
    table = strata.strata_table(contest)
    groups = by_stratum.groups(EXAM)
    assert [column.name for column in table.columns[1:]] == [group.label for group in groups]
    assert [column.name.split(" (")[0] for column in table.columns[1:3]] == [
        "beyond-reflex ID",
        "beyond-reflex OOD",
    ]
    for name in AGENTS:
        scores = expected(name, "success")
        for group, cell in zip(groups, list(cells(table, name).values())[1:], strict=True):
            if len(group.rows) < 2:
                assert cell is None
                continue
            interval = stats.t_interval(scores[:, group.rows].mean(axis=1))
            assert cell.mean == pytest.approx(interval.mean)
            assert cell.low == pytest.approx(max(interval.low, 0))
            assert cell.high == pytest.approx(min(interval.high, 1))
    names = [row.cells[0] for row in table.rows]
    assert names[len(AGENTS) :] == ["memoryless", "blind ceiling", "exact ceiling"]
    blind, ceiling = (list(cells(table, name).values())[1:] for name in names[-2:])
    assert all(low <= high for low, high in zip(blind, ceiling, strict=True) if low is not None)
    assert "beyond-reflex" in table.caption
    assert "flipping ones reaches half" in table.caption


def test_where_strata_are_unknown_the_report_says_why(tmp_path):
    noisy = make_exam(length=8, horizon=8, episodes=6, rules=list(RULES), noise=0.1)
    store_run(tmp_path, "any-one", 0, exam=noisy)
    found = contests.read(tmp_path)
    assert any("success by stratum is not shown" in said for said in found.missing)
    assert strata.tables(found.contests[0])[0].name == "main-fps30-main"


def test_each_rule_has_a_line_with_what_everybody_reached(contest):
    table = findings.every_rule_table(contest)
    assert [row.cells[0] for row in table.rows] == sorted(RULES)
    row = dict(zip([c.name for c in table.columns], table.rows[2].cells, strict=True))
    assert row["rule"] == 30
    assert row["any-one"] == pytest.approx(expected("any-one", "success")[:, 2].mean())


def test_numbers_do_not_move_when_an_agent_is_added(tmp_path, contest):
    store_runs(tmp_path, agents=("first-one", "any-one"))
    fewer = contests.read(tmp_path).contests[0]
    makers = (findings.main_table, findings.continuous_table, findings.type_table)
    for make in (*makers, strata.strata_table):
        for name in ("first-one", "any-one"):
            assert cells(make(fewer), name) == cells(make(contest), name)


# The page


class _Parser(HTMLParser):
    """Whether tags are closed in the order they were opened, and what is linked to."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.data, self.inside = [], [], "", False

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]
        self.inside = ("id", "data") in attrs
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.inside:
            self.data, self.inside = data, False


@pytest.fixture(scope="module")
def made(root):
    return report.make(
        root, title="A <b>", failures=[("a/b", "<script>")], facts=[("machine", "<cpu>")]
    )


@pytest.fixture(scope="module")
def parsed(made):
    parser = _Parser()
    parser.feed(page.render(made))
    return parser


def test_the_page_is_whole_by_itself(made, parsed):
    text = page.render(made)
    assert parsed.open == []
    assert all(link.startswith(("#", "data:")) for link in parsed.links)
    assert "<script>" not in text.split("<script", 1)[0]
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text
    assert "Failed: 1" in text
    for table in made.sections[0].tables:
        assert table.title in text


def test_the_script_is_given_the_episodes_as_they_were(contest, parsed):
    document = json.loads(parsed.data)["contests"][0]
    assert document["tapes"][0] == f"{int(EXAM.tapes()[0, 0]):08b}"[::-1]
    stored = np.frombuffer(
        base64.b64decode(document["episodes"]["first-one (declared blind)"]), np.uint8
    )
    stored = stored.reshape(len(RULES), page.SHOWN_TAPES, 8).astype(int)
    played = sit("first-one", 0).cells[:, : page.SHOWN_TAPES]
    np.testing.assert_array_equal(np.where(stored == page.NO_CELL, -1, stored), played)
    by_rule = {entry["rule"]: entry for entry in document["rules"]}
    assert by_rule[204]["ceiling"] == 1.0
    assert by_rule[30]["steps"] == EXAM.optimal_steps()[RULES.index(30)].tolist()
    scores = {score["name"]: score["success"] for score in document["scores"]}
    np.testing.assert_allclose(
        scores["any-one"], expected("any-one", "success").mean(axis=0), atol=1e-4
    )


def test_the_script_is_given_how_every_move_compares_with_the_best(parsed):
    document = json.loads(parsed.data)["contests"][0]
    assert document["not_judged"] == ""
    assert set(document["judged"]) == set(document["episodes"])
    text = document["judged"]["first-one (declared blind)"]
    best, value, lost = np.moveaxis(
        np.frombuffer(base64.b64decode(text), "<u2").reshape(len(RULES), page.SHOWN_TAPES, 8, 3),
        -1,
        0,
    )
    played = sit("first-one", 0).cells[:, : page.SHOWN_TAPES]
    is_optimal = (best >> np.maximum(played, 0) & 1) == 1
    assert (is_optimal == (lost == 0))[played >= 0].all()
    assert not best[played < 0].any()
    assert ((lost & ~np.uint16(moves.IGNORED)) <= value).all()
    assert (lost & moves.IGNORED).any()


@pytest.mark.parametrize("length", [8, 32], ids=["found", "shipped"])
def test_shortest_ways_lead_to_the_goal(length):
    exam = make_exam(split="fps30", episodes=3, rules=[30, 110, 60], length=length, horizon=length)
    bare = contests.Contest("x", "x", exam, (), exam.optimal_steps(), {})
    cells = page._shortest(bare, 3)["a shortest way"]
    for row, rule in enumerate(exam.rules):
        for column, way in enumerate(cells[row]):
            tape = space.to_int(exam.tapes()[column])
            taken = [int(cell) for cell in way if cell >= 0]
            assert len(taken) == max(bare.optimal_steps[row, column], 0)
            for cell in taken:
                tape = elementary.step(tape, cell, int(rule), length)
            assert (tape == 0) == bool(taken)


def test_files_are_written_and_are_the_same_when_made_again(root, tmp_path):
    for place in ("a", "b"):
        report.write(report.make(root), tmp_path / place)
    names = {path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*")}
    endings = {name.suffix for name in names}
    assert {".html", ".md", ".tex", ".csv", ".svg"} <= endings
    for name in names:
        if name.suffix:
            ours, theirs = (tmp_path / place / name for place in ("a", "b"))
            assert ours.read_bytes() == theirs.read_bytes(), name
    for drawing in ("rollout-example", "pipeline", "evolution", "main-fps30-per-rule"):
        assert (tmp_path / "a/figures" / f"{drawing}.svg").is_file()


def test_the_old_name_of_contests_still_works_and_says_so():
    with pytest.warns(DeprecationWarning, match="called tapebench.report.contests now"):
        from tapebench.report import results
    assert results is contests


def test_the_snippet_of_the_documentation_runs(tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to(root)
    text = (Path(__file__).parents[2] / "docs/report.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(snippet, "report.md", "exec"), {})
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        f"mine.{ending}" for ending in ("md", "tex", "csv", "svg", "pdf")
    }


# The command


def test_the_command_says_what_is_there_and_what_is_missing(root, capsys, tmp_path):
    code, out, err = tape(capsys, "report", str(root), "--out", str(tmp_path / "r"), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["contests"][0]["name"] == "main on fps30, L = 8, H = 8"
    assert (tmp_path / "r" / "index.html").is_file()
    assert any("baselines" in said for said in document["missing"])
    assert "missing: main on fps30" in err


@pytest.mark.parametrize("place", ["nowhere", "empty"])
def test_a_directory_without_runs_is_one_clear_line(capsys, tmp_path, place):
    (tmp_path / "empty").mkdir()
    code, out, err = tape(capsys, "report", str(tmp_path / place))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "there" in err
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "empty" / "report").exists()


@pytest.mark.slow
def test_reporting_imports_no_jax(root, tmp_path):
    code = (
        "import sys; from tapebench.cli import main; "
        f"main(['report', {str(root)!r}, '--out', {str(tmp_path)!r}]); "
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_intervals_of_shares_stay_within_0_and_1(contest):
    for row in findings.main_table(contest).rows:
        for cell in row.cells[1:3]:
            if isinstance(cell, Interval):
                assert 0 <= cell.low <= cell.mean <= cell.high <= 1


def test_rows_are_named_and_ranked_by_the_network_of_the_stored_config(contest):
    networks = {"first-one": "mlp", "any-one": "conv", "any-cell": "gru"}
    entries = [
        replace(
            entry,
            specs=tuple(
                spec | {"config": {"network": networks[entry.agent]}} for spec in entry.specs
            ),
        )
        for entry in contest.entries
    ]
    table = findings.main_table(replace(contest, entries=tuple(entries)))
    names = [row.cells[0] for row in table.rows[:3]]
    assert names[0] == "any-one-conv"
    assert sorted(names[1:]) == ["any-cell-gru", "first-one-mlp"]
    assert table.marks[0] == ("",) * len(table.columns)  # alone of its kind
    assert [row.group for row in table.rows[:3]] == [
        "ring-equivariant",
        "fully connected",
        "fully connected",
    ]
    pairs = {
        row.cells[:2]
        for row in findings.pairwise_table(replace(contest, entries=tuple(entries))).rows
    }
    assert {frozenset(pair) for pair in pairs} == {frozenset(names[1:])}


def test_system_identification_stands_with_the_references(contest):
    entries = [replace(contest.entries[0], agent="automata"), *contest.entries[1:]]
    identified = replace(contest, entries=tuple(entries))
    kinds = {row.cells[0]: row.kind for row in findings.main_table(identified).rows}
    assert kinds["automata"] == "reference"
    assert "no reinforcement learning" in findings.main_table(identified).caption
    assert "automata" not in {entry.agent for entry in findings.learners(identified)}


@pytest.fixture
def guest(tmp_path, root):
    """A bundle of somebody else on the exam that the runs sat, and another on another exam."""
    from tapebench.runs import evaluation

    evaluation.evaluate("flip-ones", EXAM, name="<guest>").write_bundle(tmp_path / "guest.tape")
    other = make_exam(length=9, horizon=3, episodes=2, rules=[0, 30])
    evaluation.evaluate("flip-ones", other).write_bundle(tmp_path / "other.tape")
    return tmp_path


def test_a_bundle_stands_beside_our_agents_in_tables_figures_explorer_and_player(root, guest):
    made = report.make(root, bundles=[guest / "guest.tape"])
    (section,) = made.sections
    name = "<guest> (declared blind)"
    main = next(table for table in section.tables if table.name.endswith("-main"))
    played = verify(guest / "guest.tape").episodes.success
    for side in ("id", "ood"):
        mean = played[EXAM.rows(side)].mean()
        assert cells(main, name)[f"{side.upper()} success"].mean == pytest.approx(mean)
    picture = next(picture for picture in section.pictures if picture.name.endswith("-success"))
    assert name in picture.drawing.arguments[0]
    document = page.explorer(section.contest)
    assert name in {score["name"] for score in document["scores"]}
    assert name in document["episodes"]
    assert "<guest>" not in page.render(made)


def test_a_bundle_whose_exam_nobody_sat_is_refused_in_one_line(capsys, root, guest):
    code, _, error = tape(capsys, "report", str(root), str(guest / "other.tape"), "--out", "x")
    assert code == 2
    assert "is of an exam that no run here sat: fps30, L = 9, H = 3, standard" in error
    assert error.count("\n") == 1
    (guest / "cut.tape").write_bytes((guest / "guest.tape").read_bytes()[:-1])
    code, _, error = tape(capsys, "report", str(root), str(guest / "cut.tape"), "--out", "x")
    assert code == 2
    assert "is refused: the arrays do not fill the file" in error


# Rules of other families


def test_a_report_on_a_torus_has_what_is_known_and_says_what_is_not(on_a_torus):
    made = report.make(on_a_torus)
    (contest,) = made.findings.contests
    assert contest.title == "main on life-H6-matched, a torus of 4 × 5, H = 6"
    tables = {table.name.rpartition("-")[2]: table for table in made.sections[0].tables}
    assert {"main", "types", "drop", "rules"} <= tables.keys()
    assert not {"strata", "relatives"} & tables.keys()
    said = " ".join(made.findings.missing)
    assert "strata are known for elementary rules, not for life" in said
    assert "no table by relatives" in said
    assert bounds.BRACKETED in tables["main"].caption
    assert all(column.name.startswith(("agent", "density")) for column in tables["types"].columns)
    labels = [LIFE.label(rule) for rule in contest.exam.rules.tolist()]
    assert [row.cells[0] for row in tables["rules"].rows] == labels
    assert not made.illustrations  # those are of elementary rules


def test_shortest_ways_on_a_torus_are_in_the_page(on_a_torus):
    (contest,) = contests.read(on_a_torus).contests
    exam, document = contest.exam, page.explorer(contest)
    assert document["world"] == {"family": "life", "shape": [4, 5]}
    assert {"wolfram", "mirror"}.isdisjoint(document["rules"][0])
    ways = np.frombuffer(base64.b64decode(document["episodes"][page.SHORTEST]), np.uint8)
    ways = ways.reshape(len(exam.rules), 4, 6)
    steps = exam.optimal_steps()
    assert (steps > 1).any()
    np.testing.assert_array_equal((ways != page.NO_CELL).sum(axis=2), np.maximum(steps, 0))
    for row, rule in enumerate(exam.rules.tolist()):
        for start, way, fewest in zip(exam.tapes()[:, 0], ways[row], steps[row], strict=True):
            tape = int(start)
            for cell in way[way != page.NO_CELL].tolist():
                tape = LIFE.step(tape, cell, rule, exam.task.space)
            assert (tape == 0) == (fewest >= 0)
