"""Symmetries of rings and tori, once it is known what each makes of a family's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapebench.physics.family import Symmetry
from tapebench.physics.space import Space

OnRule = Callable[[int], int]


def mirror(on_rule: OnRule) -> Symmetry:
    """Left and right exchanged."""
    return Symmetry("mirror", on_rule, _mirror_cells, _mirror_site, keeps_zeros=True)


def upside_down(on_rule: OnRule) -> Symmetry:
    """The rows of a torus in reverse."""
    return Symmetry("upside-down", on_rule, _turn_cells, _turn_site, keeps_zeros=True)


def transpose(on_rule: OnRule) -> Symmetry:
    """Rows and columns exchanged, which only a square torus takes."""
    return Symmetry(
        "transpose", on_rule, _transpose_cells, _transpose_site, keeps_zeros=True, is_of=_is_square
    )


def complement(on_rule: OnRule) -> Symmetry:
    """Zeros and ones exchanged."""
    return Symmetry("complement", on_rule, _negate_cells, _same_site, keeps_zeros=False)


# Named, as families are values that can be copied and sent: a lambda cannot be found again.


def _mirror_cells(cells: Any, space: Space) -> Any:
    return cells[..., ::-1]


def _mirror_site(site: int, space: Space) -> int:
    width = space.shape[-1]
    return site - site % width + (width - 1 - site % width)


def _turn_cells(cells: Any, space: Space) -> Any:
    return cells[..., ::-1, :]


def _turn_site(site: int, space: Space) -> int:
    height, width = space.shape
    return (height - 1 - site // width) * width + site % width


def _transpose_cells(cells: Any, space: Space) -> Any:
    return cells.swapaxes(-1, -2)


def _transpose_site(site: int, space: Space) -> int:
    height, width = space.shape
    return site % width * height + site // width


def _is_square(space: Space) -> bool:
    return space.shape[0] == space.shape[1]


def _negate_cells(cells: Any, space: Space) -> Any:
    return 1 - cells


def _same_site(site: int, space: Space) -> int:
    return site
