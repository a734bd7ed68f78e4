"""The README's headline is made of stored runs, always the same, or not at all."""

from pathlib import Path

import pytest

from stored_runs import store_run
from tapebench.exam import by_stratum
from tapebench.pages import headline
from tapebench.report import findings
from tapebench.runs import published, tracks

ROOT = Path(__file__).parents[2]


LITE = tracks.get_track("lite@2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two agents on the exam of `lite@2`, and one that sat another exam under the same name."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("first-one", "any-cell"):
        for seed in range(2):
            store_run(root, name, seed, experiment="lite", exam=LITE.exam(), last=1)
    few = LITE.exam(split="matched30", rules=[30, 204], length=8, horizon=8)
    store_run(root, "any-one", 0, experiment="lite", exam=few)
    return root


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        f"above\n\n{headline.BEGIN}\nwhat stood here\n{headline.END}\n\nbelow\n"
    )
    return tmp_path


@pytest.mark.slow
def test_the_headline_holds_table_and_picture_and_is_the_same_every_time(capsys, runs, repository):
    headline.main([str(runs)], repository)
    readme = (repository / "README.md").read_text()
    picture = (repository / headline.PICTURE).read_bytes()
    assert readme.startswith(f"above\n\n{headline.BEGIN}\n![")
    assert readme.endswith(f"{headline.END}\n\nbelow\n")
    assert "what stood here" not in readme
    table = [line for line in readme.splitlines() if line.startswith("|")]
    agent, *shown = headline.SHOWN
    first = [group.label for group in by_stratum.groups(LITE.exam())[:2]]
    assert table[0] == f"| {' | '.join([agent, *first, *shown])} |"
    assert all(label.startswith("beyond-reflex") for label in first)
    named = [line.split(" | ")[0].strip("| ") for line in table[2:]]
    assert sorted(named[:2]) == ["any-cell", "first-one"]
    assert named[2:] == ["random", "flip-ones", "greedy", "mpc", "exact ceiling"]
    prose = " ".join(readme.split())
    assert "60 ID and 30 OOD rules with 10 start tapes" in prose
    assert f"Not finished: {', '.join(LITE.agents)}." in prose
    assert picture.startswith(b"<?xml")
    assert capsys.readouterr().out.startswith("lite on fps30, L = 32, H = 32")
    headline.main([str(runs)], repository)
    assert (repository / "README.md").read_text() == readme
    assert (repository / headline.PICTURE).read_bytes() == picture


@pytest.mark.parametrize(
    ("place", "complaint"),
    [("nowhere", "there is no results directory"), ("docs", "there are no finished runs")],
)
def test_without_results_nothing_is_touched_and_one_line_says_why(
    capsys, repository, place, complaint
):
    before = (repository / "README.md").read_text()
    with pytest.raises(SystemExit) as stop:
        headline.main([str(repository / place)], repository)
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1
    assert (repository / "README.md").read_text() == before
    assert not (repository / headline.PICTURE).exists()


def test_a_readme_without_markers_is_left_alone():
    with pytest.raises(ValueError, match="needs one line"):
        headline.put("no markers", "text")


def test_the_readme_has_a_place_for_the_headline():
    assert headline.put((ROOT / "README.md").read_text(), "text").count("\ntext\n") == 1


@pytest.mark.slow
def test_the_readme_shows_the_published_results():
    place = published.directory()
    contest, track = headline.best_contest(place)
    readme, picture = (ROOT / "README.md").read_text(), findings.success_picture(contest).svg
    assert headline.put(readme, headline.headline_text(contest, track, place)) == readme, (
        "run: python tools/headline.py"
    )
    assert (ROOT / headline.PICTURE).read_bytes() == picture, "run: python tools/headline.py"
