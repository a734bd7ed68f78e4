"""Figures: the same bytes every time, all that was asked for in them, safe to put into a page."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tapebench.physics.families import elementary
from tapebench.physics.features import TYPES
from tapebench.physics.tables import DENSITIES
from tapebench.report import drawing, figures, illustrations, style
from tapebench.report.figures import Panel, Picture, RulePoint, Series
from tapebench.stats import Interval, performance_profile
from tapebench.tasks.render import Spacetime as Episode

BAND = (Interval(0.1, 0.0, 0.2), Interval(0.3, 0.2, 0.4))


def curves():
    panels = [
        Panel(side, (Series("dqn", (1e5, 2e5), BAND), Series("ppo", (1e5, 2e5), (0.1, 0.2))), refs)
        for side, refs in (("ID", {"mpc": 0.41, "flip-ones": 0.26}), ("OOD", None))
    ]
    return figures.lines(panels, x="environment steps", y="strict success")


def every_kind():
    rng = np.random.default_rng(0)
    points = [RulePoint(rule, TYPES[rule % 3], rng.random(), 1.0, rule % 2 == 0) for rule in (1, 5)]
    profile = performance_profile(rng.random((5, 9)), np.linspace(0, 1, 5), rng)
    tapes = rng.integers(0, 2, (5, 8))
    return {
        "lines": curves(),
        "dots": figures.dots({"dqn": {"ID": BAND[0], "OOD": 0.2}}, x="success"),
        "per_rule": figures.rule_points({"dqn": points}, y="success"),
        "boxes": figures.boxes({"dqn": {"fps-0": [0.1, 0.2, 0.4]}}, y="OOD success"),
        "profiles": figures.profiles({"ID": {"dqn": profile}}),
        "heat": figures.heat(rng.random((2, 3)), "ab", "xyz", x="plan", y="objective", label="s"),
        "spacetimes": figures.spacetimes([Episode("rule 30", "chaotic", tapes, [0, 3, -1, 7])]),
    }


@pytest.fixture(scope="module")
def drawn():
    return every_kind()


@pytest.mark.slow
def test_every_figure_is_the_same_bytes_when_made_again(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(drawing, "_read", lambda path: None)  # nothing is taken from the cache
    for name, again in every_kind().items():
        first = [path.read_bytes() for path in figures.save(drawn[name], tmp_path / name)]
        saved_twice = [path.read_bytes() for path in figures.save(drawn[name], tmp_path / name)]
        made_again = [path.read_bytes() for path in figures.save(again, tmp_path / name)]
        assert first == saved_twice == made_again, name
        assert first[1].startswith(b"%PDF")
        assert b"CreationDate" not in first[1]
        assert b"dc:date" not in first[0]
    assert not list(tmp_path.glob("*partial"))


def refuse(*arguments):
    raise AssertionError("it was drawn")


def test_what_was_drawn_before_is_not_drawn_again(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = {name: drawn.render("svg") for name, drawn in every_kind().items()}
    assert len({drawn.key for drawn in every_kind().values()}) == len(first)
    other = figures.dots({"dqn": {"ID": BAND[0], "OOD": 0.21}}, x="success")
    with monkeypatch.context() as patch:
        patch.setattr(drawing, "_draw", refuse)
        assert {name: drawn.render("svg") for name, drawn in every_kind().items()} == first
        with pytest.raises(AssertionError, match="it was drawn"):
            other.render("svg")
        with pytest.raises(AssertionError, match="it was drawn"):
            curves().render("pdf")


def test_a_damaged_or_closed_cache_costs_nothing_but_time(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = curves().render("svg")
    (cached,) = tmp_path.rglob("*.svg")
    cached.write_bytes(cached.read_bytes().replace(b"dqn", b"ppo"))
    assert curves().render("svg") == first
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert curves().render("svg") == first


def test_the_cache_forgets_what_is_oldest(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(drawing, "MOST_KEPT", 3)
    monkeypatch.setattr(drawing, "_draw", lambda figure, ending: b"drawn")
    for number in range(6):
        figures.dots({"dqn": {"ID": number / 10}}, x="success").render("svg")
        assert len(list(tmp_path.rglob("*.svg"))) <= 3


def test_what_cannot_be_told_apart_is_refused():
    with pytest.raises(TypeError, match="cannot tell object apart"):
        figures.dots({"dqn": {"ID": object()}}, x="success").render("svg")


def test_axes_are_labelled_and_agents_named(tmp_path):
    svg = figures.save(curves(), tmp_path / "curves")[0].read_text()
    for text in ("environment steps", "strict success", "dqn", "ppo", "mpc", "flip-ones", "200k"):
        assert f">{text}</text>" in svg


def test_drawing_leaves_the_global_style_alone(drawn):
    import matplotlib

    assert matplotlib.rcParams["svg.hashsalt"] is None
    assert matplotlib.rcParams["text.color"] == "black"


def test_colours_for_types_and_sides_are_of_the_palette():
    assert set(style.TYPE_COLOURS) == {*TYPES, *DENSITIES} == set(style.TYPE_MARKERS)
    assert len(set(style.PALETTE)) == len(style.PALETTE)
    assert {*style.TYPE_COLOURS.values(), *style.SIDE_COLOURS.values()} <= set(style.PALETTE)


def test_an_inlined_figure_is_xml_with_a_label_and_the_colours_of_its_page(drawn):
    for name, figure in drawn.items():
        text = figures.inline(Picture(name, name, 'What "is" <seen> & why', figure))
        root = ET.fromstring(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
        assert root.get("aria-label") == 'What "is" <seen> & why'
        assert "var(--ink, #1b1f23)" in text
        assert not re.search("(?<!, )#1b1f23", text)
        assert "<metadata" not in text
        ids = re.findall(r' id="([^"]*)"', text)
        assert len(ids) == len(set(ids))


def test_rules_stand_in_the_same_place_in_every_panel():
    def panel(values):
        return [RulePoint(rule, "chaotic", value, 1.0) for rule, value in enumerate(values)]

    figure = figures.rule_points({"a": panel([0.9, 0.1, 0.4]), "b": panel([0.3, 0.2, 0.9])}, y="s")
    drawn = [
        [line.get_ydata().tolist() for line in axis.lines if line.get_marker() == "^"]
        for axis in figure.figure.axes
    ]
    assert drawn == [[[0.1, 0.9, 0.4]], [[0.2, 0.3, 0.9]]]


def test_tapes_are_drawn_where_their_ones_are():
    tapes = np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 0, 1, 1]])
    figure = figures.spacetimes([Episode("x", "", tapes, [2, 4])])
    ones, flips = figure.figure.axes[0].patches[-2:]
    for row, column in np.ndindex(tapes.shape):
        centre = (column + 0.5, row + 0.5)
        assert ones.get_path().contains_point(centre) == bool(tapes[row, column])
        assert flips.get_path().contains_point(centre) == ((row, column) in [(0, 2), (1, 4)])


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path):
    with pytest.raises(ValueError, match="cannot write"):
        figures.save(curves(), tmp_path / "none" / "x")


def test_the_example_shows_what_rule_30_does():
    figure = illustrations.rollout_example().drawing.figure
    tapes = []
    for axis in figure.axes:
        ones = axis.patches[-2].get_path()
        tapes.append(sum(ones.contains_point((cell + 0.5, 0.5)) << cell for cell in range(8)))
    start, flipped, after, again, last = tapes
    assert (start ^ flipped).bit_count() == (after ^ again).bit_count() == 1
    assert after == elementary.evolve(flipped, 30, 8)
    assert last == elementary.evolve(again, 30, 8)
    assert after > 0
    assert last > 0


def test_three_laws_are_shown_from_one_start_with_one_set_of_flips():
    axes = illustrations.evolution().drawing.figure.axes
    assert len(axes) == 3
    flips = [axis.patches[-1].get_path().vertices for axis in axes]
    assert all(np.array_equal(flips[0], other) for other in flips[1:])
    first = [
        [bool(axis.patches[-2].get_path().contains_point((c + 0.5, 0.5))) for c in range(32)]
        for axis in axes
    ]
    assert first[0] == first[1] == first[2]
    names = {picture.name for picture in illustrations.all_pictures()}
    assert names == {"rollout-example", "pipeline", "evolution"}
