"""Figures that need no results: what a step is, how the benchmark works, what rules do."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from tapebench.physics import space, starts
from tapebench.physics.space import Space
from tapebench.report import figures, style
from tapebench.report.drawing import drawing
from tapebench.report.figures import Picture
from tapebench.report.style import DIM, FAINT, INK, PALETTE
from tapebench.tasks.render import Spacetime as Episode
from tapebench.tasks.universe import ELEMENTARY

FAMILY = ELEMENTARY.family
EXAMPLE_RULE, EXAMPLE_LENGTH, EXAMPLE_TAPE, EXAMPLE_CELLS = 30, 8, 2, (3, 6)
EVOLUTION = {"stable": 0, "periodic": 90, "chaotic": 30}
"""A rule of each type, those that the paper shows."""


def all_pictures() -> list[Picture]:
    """Every illustration."""
    return [rollout_example(), pipeline(), evolution()]


def rollout_example() -> Picture:
    """Two steps under rule 30 on eight cells, action and update drawn apart."""
    return Picture(
        "rollout-example",
        "What a step is",
        f"Two steps under rule {EXAMPLE_RULE} on a ring of {EXAMPLE_LENGTH} cells. Each step flips "
        "one cell (marked), then the rule updates all cells at once. Dark is one. Only the rule "
        "changes from training to test.",
        _draw_rollout(),
    )


@drawing
def _draw_rollout() -> Figure:
    tape = space.to_int(starts.exam_tapes(EXAMPLE_LENGTH, EXAMPLE_TAPE + 1)[EXAMPLE_TAPE])
    stages = [("start", tape, -1)]
    for cell in EXAMPLE_CELLS:
        stages.append((f"flip cell {cell}", space.flip(stages[-1][1], cell), cell))
        evolved = FAMILY.evolve(stages[-1][1], EXAMPLE_RULE, Space((EXAMPLE_LENGTH,)))
        stages.append(("update", evolved, -1))
    with style.styled():
        figure = Figure(figsize=(8.6, 1.3), layout="constrained")
        axes = figure.subplots(1, len(stages))
        for axis, (title, state, cell) in zip(axes, stages, strict=True):
            figures.draw_tapes(axis, [_cells(state, EXAMPLE_LENGTH)], [cell])
            axis.set_title(title, fontsize=8.5, color=PALETTE[1] if cell >= 0 else INK)
            axis.set_yticks([])
            axis.set_xticks([0, EXAMPLE_LENGTH])
            for line in range(1, EXAMPLE_LENGTH):
                axis.axvline(line, color=FAINT, lw=0.6)
            wrong = state.bit_count()
            axis.set_xlabel(f"distance {wrong}/{EXAMPLE_LENGTH}", fontsize=8, color=DIM)
    return figure


def pipeline() -> Picture:
    """The benchmark from left to right."""
    return Picture(
        "pipeline",
        "How the benchmark works",
        "256 elementary rules are split into those to train on and those held out; agents train "
        "with a rule drawn at each reset, sit the same exam on both sides, and are reported with "
        "intervals beside what needs no learning, what planning reaches and what is possible.",
        _draw_pipeline(),
    )


@drawing
def _draw_pipeline() -> Figure:
    stages = (
        ("256 rules", "features, type,\nmirror images,\nexact ceilings"),
        ("Split", "rules to train on\nand rules held out,\naudited for leaks"),
        ("Training", "a rule is drawn at\neach reset and never\nshown; many seeds"),
        ("Exam", "every rule, the same\nstart tapes for all;\nID and OOD apart"),
        ("Report", "intervals over seeds,\nbeside baselines,\nplanner and ceiling"),
    )
    with style.styled():
        figure = Figure(figsize=(8.8, 1.7))
        axis = figure.add_axes((0.01, 0.02, 0.98, 0.96))
        axis.set_axis_off()
        axis.set_xlim(0, 5)
        axis.set_ylim(0, 1)
        for number, (title, text) in enumerate(stages):
            box = FancyBboxPatch(
                (number + 0.05, 0.1),
                0.8,
                0.8,
                boxstyle="round,pad=0.0,rounding_size=0.05",
                mutation_aspect=0.5,
                facecolor="none",
                edgecolor=PALETTE[0],
                lw=1.3,
            )
            axis.add_patch(box)
            axis.text(number + 0.45, 0.74, title, ha="center", va="center", weight="bold")
            axis.text(
                number + 0.45, 0.38, text, ha="center", va="center", fontsize=7.6, linespacing=1.35
            )
            if number:
                axis.add_patch(
                    FancyArrowPatch(
                        (number - 0.13, 0.5),
                        (number + 0.03, 0.5),
                        arrowstyle="-|>",
                        mutation_scale=9,
                        color=DIM,
                        lw=1.3,
                    )
                )
    return figure


def evolution(length: int = 32, steps: int = 64) -> Picture:
    """A stable, a periodic and a chaotic rule from the same start with the same flips."""
    start = space.to_int(starts.exam_tapes(length, 1)[0])
    cells = [int(word) % length for word in starts.exam_tapes(32, steps, salt="flips")[:, 0]]
    drawn = []
    for kind, rule in EVOLUTION.items():
        known = ELEMENTARY.features[rule]
        assert known.type == kind
        tapes = [start]
        for cell in cells:
            tapes.append(FAMILY.step(tapes[-1], cell, rule, Space((length,))))
        rows = [_cells(tape, length) for tape in tapes]
        about = f"{kind}, Wolfram class {known.wolfram_class}"
        drawn.append(Episode(f"rule {rule}", about, rows, cells))
    return Picture(
        "evolution",
        "Same start, same flips, other laws",
        "Tapes of 32 cells under a stable, a periodic and a chaotic rule, from the same start and "
        "with the same cells flipped (marked). Time runs down, dark is one. Types are by activity "
        "and entropy in short rollouts, Wolfram's classes by the patterns that come up: rule 90, "
        "the paper's periodic example, is of his class 3, the chaotic one.",
        figures.spacetimes(drawn),
    )


def _cells(tape: int, length: int) -> list[int]:
    return [(tape >> cell) & 1 for cell in range(length)]
