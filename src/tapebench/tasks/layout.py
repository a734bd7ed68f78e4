"""Where things are in an observation: the one place that slices it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layout:
    """Observations `[..., D]`: the cells, then t/H, then the cells of the goal if it is observed.

    For arrays of NumPy and JAX alike. Whether there is a goal is seen from the observation itself.
    """

    size: int
    """Cells of the tape."""

    def cells(self, obs: Any) -> Any:
        """The observed cells, `[..., size]`; hidden ones are zeros."""
        return obs[..., : self.size]

    def time(self, obs: Any) -> Any:
        """Steps taken as a share of the horizon, `[...]`."""
        return obs[..., self.size]

    def time_column(self, obs: Any) -> Any:
        """`time` as a part to be joined with others, `[..., 1]`."""
        return obs[..., self.size : self.size + 1]

    def goal(self, obs: Any) -> Any:
        """The goal's cells, `[..., size]`, or `[..., 0]` where they are not observed."""
        return obs[..., self.size + 1 :]

    def has_goal(self, obs: Any) -> bool:
        """Whether the goal is observed."""
        return bool(obs.shape[-1] > self.size + 1)

    def width(self, observes_goal: bool) -> int:
        """D."""
        return 2 * self.size + 1 if observes_goal else self.size + 1
