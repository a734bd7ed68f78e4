"""What a step was worth: advantages by generalised advantage estimation (Schulman et al. 2016).

    δ_t = r_t + γ (1 − end_t) V_{t+1} − V_t        A_t = δ_t + γ λ (1 − end_t) A_{t+1}

Segments are cut from running episodes: where one is still going on at the last row, the value of
the observation after it stands for the rest, and A ends there. Nothing passes over an end.

Where it is only likely that an episode goes on, with probability c_t, the same in another form:

    R_t = r_t + γ c_t ((1 − λ) V_{t+1} + λ R_{t+1})        R_T = V_T        A_t = R_t − V_t
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float32


def advantages(
    reward: Float32[Array, "T E"],
    value: Float32[Array, "T E"],
    ended: Bool[Array, "T E"],
    last: Float32[Array, " E"],
    discount: float | Float32[Array, ""],
    trace: float | Float32[Array, ""],
) -> Float32[Array, "T E"]:
    """Advantages of segments; `last` is the value of what follows the last row.

    Added to `value` they are the targets of the value function. `trace` is λ: 0 looks one step
    ahead, 1 as far as the segment goes.
    """
    ahead = jnp.concatenate([value[1:], last[None]])
    goes_on = discount * ~ended
    error = reward + goes_on * ahead - value

    def back(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        error, decay = row
        advantage = error + decay * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(last), (error, trace * goes_on), reverse=True)[1]


def lambda_returns(
    reward: Float32[Array, " T *B"],
    value: Float32[Array, " T *B"],
    goes_on: Float32[Array, " T *B"],
    last: Float32[Array, "*B"],
    trace: float | Float32[Array, ""],
) -> Float32[Array, " T *B"]:
    """λ-returns of segments; `goes_on` is the discount times the probability of continuing,
    `last` the value of what follows the last row."""
    ahead = jnp.concatenate([value[1:], last[None]])

    def back(later: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward, goes_on, ahead = row
        value = reward + goes_on * (ahead + trace * (later - ahead))
        return value, value

    return jax.lax.scan(back, last, (reward, goes_on, ahead), reverse=True)[1]
