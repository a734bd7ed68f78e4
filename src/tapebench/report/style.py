"""The house style of figures: colours, marks, dashes, type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib

from tapebench.physics.tables import DENSITIES

INK, DIM, FAINT, PAPER = "#1b1f23", "#66707a", "#dfe3e6", "#fefefe"
"""Text and axes, what stands back, grid lines, and the ground."""

PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#7a5195",
    "#8c6d46",
    "#5a6678",
)
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
MARKERS = "osD^vP*Xh"

TYPE_COLOURS = {"stable": PALETTE[0], "periodic": PALETTE[4], "chaotic": PALETTE[1]}
TYPE_COLOURS |= zip(DENSITIES, (PALETTE[5], PALETTE[0], PALETTE[4], PALETTE[1]), strict=True)
TYPE_MARKERS = {"stable": "o", "periodic": "s", "chaotic": "^"}
TYPE_MARKERS |= zip(DENSITIES, "oDs^", strict=True)
SIDE_COLOURS = {"id": PALETTE[0], "ood": PALETTE[1]}
SIDE_NAMES = {"id": "ID: rules seen in training", "ood": "OOD: held-out rules"}

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": DIM,
    "axes.linewidth": 0.8,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": PAPER,
    "figure.titlesize": 11.0,
    "figure.titleweight": "bold",
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.color": DIM,
    "ytick.color": DIM,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "tapebench",
    "pdf.fonttype": 42,
}


@contextmanager
def styled() -> Iterator[None]:
    """The house style, for whoever draws on axes directly."""
    with matplotlib.rc_context(STYLE):
        yield
