"""How accurate and how calibrated are world models, on seen and on unseen rules?

Models forecast the same episodes of random flips under every rule: what will the tape be d steps
ahead, if these cells are flipped? A `Forecast` holds their probabilities, one step ahead and
open-loop; `assess` compares it with what happened. The reference is the exact filter, which
knows the 256 rules and nothing else: no model without that knowledge can be expected to do better.

Errors are shares of cells. A model that is right about nothing has 0.5; one that takes a tape to
stay as it is does better than that under many rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

from tapebench.base import files
from tapebench.exam import policy
from tapebench.exam.exam import Exam
from tapebench.exam.rollout import watch
from tapebench.physics import space
from tapebench.planning import belief
from tapebench.runs import training

DEPTH = 16
"""Steps that a forecast goes ahead."""

BINS = 10
"""Of confidence, from 0.5 to 1."""


@dataclass(frozen=True)
class Record:
    """Episodes as they happened: T = H + 1 rows of B episodes, rule by rule."""

    exam: Exam
    obs: np.ndarray
    """float32 `[T, B, D]`; what follows the end of an episode repeats its last row."""
    action: np.ndarray
    """int `[T, B]`: the cell flipped after each row; 0 where there is none."""
    is_real: np.ndarray
    """bool `[T, B]`: whether the row belongs to the episode."""

    @property
    def tapes(self) -> np.ndarray:
        """`[T, B, L]`."""
        return self.exam.task.layout.cells(self.obs)

    def by_rule(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weighted means `[R]` of values `[T, B]`; not a number where nothing weighs."""
        shape = len(values), len(self.exam.rules), -1
        total = (values * weights).reshape(shape).sum(axis=(0, 2))
        weight = weights.reshape(shape).sum(axis=(0, 2))
        return np.divide(total, weight, out=np.full(total.shape, np.nan), where=weight > 0)


Forecast = np.ndarray
"""float32 `[depth, T, B, L]`: the probability that a cell is one; entry `[d - 1, t]` is about row
t + d, predicted from the rows up to t and the flips up to row t + d - 1."""

Forecaster = Callable[[Record, int], Forecast]
"""`model(record, depth)` makes a forecast."""


def record(exam: Exam, seed: int = 0) -> Record:
    """Episodes of random flips: every rule of the exam from each of its tapes."""
    task = exam.task
    flips = policy.random(task)
    observer = replace(
        flips, init=partial(_nothing, task.observation_size), act=_observing(flips.act)
    )
    episodes, seen, is_real = watch(observer, task, _look, None, exam.episodes, seed=seed)
    cells = np.pad(episodes.cells.reshape(-1, task.horizon), ((0, 0), (0, 1)), constant_values=-1)
    return Record(
        exam=exam,
        obs=np.ascontiguousarray(seen["obs"].swapaxes(0, 1)),
        action=cells.T.clip(min=0).astype(np.int32),
        is_real=is_real.T,
    )


def _nothing(size: int, rule: None, num: int) -> Any:
    return jnp.zeros((num, size))


@cache
def _observing(act: Any) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """Acts likewise, and remembers what it observed, to be looked at."""
    return lambda memory, obs, stream: (obs, act(memory, obs, stream)[1])


def _look(memory: Any, rule: Any) -> dict[str, Any]:
    return {"obs": memory}


# Models.


def load_model(path: Path) -> Forecaster:
    """The model of a run, as it was at its last checkpoint."""
    spec = training.from_dict(files.read_json(path / "spec.json"))
    agent = spec.make_agent()
    if agent.forecast is None:
        raise ValueError(f"{spec.agent} has no model of the world: ask an agent with a forecast")
    _, state, _ = training.load_learned(path, spec, agent)
    foresee = agent.forecast(state)
    return lambda record, depth: foresee(record.obs, record.action, record.is_real, depth)


def forecast_filter(candidates: tuple[int, ...], record: Record, depth: int) -> Forecast:
    """Forecast of a Bayesian filter with a uniform prior over `candidates`.

    Each time that a transition contradicts a rule it counts a millionth of what it did, so what is
    left are the true rule and its like or, where the true one is no candidate, those that were
    contradicted least often.
    """
    task = record.exam.task
    length = task.length
    tapes = np.asarray(space.pack(record.tapes.astype(np.uint8)))
    rows, num, words = tapes.shape
    rules = np.array(candidates, np.uint32)
    forecast = np.zeros((depth, rows, num, length), np.float32)
    log_belief = jnp.broadcast_to(belief.log_prior(candidates), (num, task.family.num_rules))
    for row in range(rows):
        if row:
            mismatch = belief.mismatches(tapes[row - 1], record.action[row - 1], tapes[row], length)
            learned = belief.update(log_belief, mismatch)
            log_belief = jnp.where(record.is_real[row][:, None], learned, log_belief)
        weight = np.exp(np.asarray(log_belief))[:, rules]
        ahead = np.broadcast_to(tapes[row][:, None], (num, len(rules), words))
        for step in range(min(depth, rows - 1 - row)):
            cell = record.action[row + step][:, None].astype(np.uint32)
            ahead = task.family.step(ahead, cell, rules, task.space)
            cells = space.unpack(ahead, length).astype(np.float32)
            forecast[step, row] = np.einsum("br,brl->bl", weight, cells)
    return forecast


# What forecasts are worth.


@dataclass(frozen=True)
class Assessment:
    """A forecast against what happened. Means are by rule, `[..., R]`."""

    error: np.ndarray
    """`[depth, R]`: share of cells that were likelier to be what they did not become."""
    bits: np.ndarray
    """`[R]`: one step ahead, mean surprise of a cell, −log2 of the probability of what it became;
    at most 20 for each, so that certainty that is wrong stays finite."""
    whole: np.ndarray
    """`[R]`: share of tapes foreseen without a fault one step ahead."""
    warned: np.ndarray
    """`[R]`: rank correlation, over the steps under a rule, of the wrong cells that were expected
    by the model's own probabilities and those that there were; not a number where either is
    constant, as in a model that is never wrong."""
    count: np.ndarray
    """`[R, bins]`: probabilities of the likelier value by size, one step ahead."""
    confidence: np.ndarray
    """`[R, bins]`: their sum."""
    right: np.ndarray
    """`[R, bins]`: how many came true."""

    def calibration(self, rules: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of some rules together, `[bins]`: share of all, mean confidence, frequency of truth."""
        count, sure, right = (
            part[rules].sum(axis=0) for part in (self.count, self.confidence, self.right)
        )
        filled = np.where(count > 0, count, np.nan)
        return count / count.sum(), sure / filled, right / filled

    def calibration_error(self, rules: np.ndarray) -> float:
        """How far confidence is from the frequency of truth, weighed by how often it is so."""
        share, sure, right = self.calibration(rules)
        return float(np.nansum(share * np.abs(sure - right)))


def assess(forecast: Forecast, record: Record) -> Assessment:
    """Compare a forecast with what happened."""
    depth, rows = forecast.shape[:2]
    tapes = record.tapes
    error = np.zeros((depth, len(record.exam.rules)))
    for step in range(depth):
        num_rows = rows - 1 - step
        wrong = (forecast[step, :num_rows] > 0.5) != (tapes[step + 1 :] > 0.5)
        error[step] = record.by_rule(wrong.mean(axis=-1), record.is_real[step + 1 :])

    prob, tape, real = forecast[0, :-1], tapes[1:], record.is_real[1:]
    truth = np.where(tape > 0.5, prob, 1.0 - prob)
    sure = np.maximum(prob, 1.0 - prob)
    is_right = (prob > 0.5) == (tape > 0.5)
    surprise = -np.log2(np.maximum(truth, 2.0**-20)).mean(axis=-1)
    num_rules = len(record.exam.rules)
    scaled = (sure - 0.5) * 2 * BINS
    bins = scaled.astype(int).clip(0, BINS - 1)
    rule = np.arange(real.shape[1]) // (real.shape[1] // num_rules)
    slot = (rule[:, None] * BINS + bins)[real]

    def sums(weights: np.ndarray) -> np.ndarray:
        every = np.bincount(slot.ravel(), weights[real].ravel(), minlength=num_rules * BINS)
        return every.reshape(num_rules, BINS)

    expected, happened = (1.0 - sure).sum(axis=-1), (~is_right).sum(axis=-1)
    return Assessment(
        error=error,
        bits=record.by_rule(surprise, real),
        whole=record.by_rule(is_right.all(axis=-1), real),
        warned=np.array(
            [
                _rank_correlation(
                    expected[:, columns][real[:, columns]], happened[:, columns][real[:, columns]]
                )
                for columns in np.arange(real.shape[1]).reshape(num_rules, -1)
            ]
        ),
        count=sums(np.ones_like(sure)),
        confidence=sums(sure),
        right=sums(is_right.astype(float)),
    )


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(spearmanr(x, y).statistic)
