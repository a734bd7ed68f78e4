"""What an agent is given about the rule, beside what it observes: the option `context`.

- `none`: nothing, it has to find out by itself;
- `evidence`: what the present episode has shown of the rule's table, entry by entry, whether it
  was seen and what it is. Exact, and blind: computed from observations and the agent's own flips
  alone, by the same function in training and in exams;
- `rule`: the true table, all of it seen. **Privileged**: a policy with it `sees_rule`, and its
  results say what control is worth once the rule is known, not what an agent can do.

So rule − evidence is the price of partial knowledge, evidence − none the value of evidence to an
agent that cannot gather it by itself. `rule` and `evidence` are the same network on other numbers.
`none` has fewer inputs: no table, and with `conv` nothing to look up in it (`nn.look_up`).

In an exam of several trials under one rule, evidence is kept from one to the next. Training never
shows that: there a rule lasts for an episode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float32, Integer, PRNGKeyArray

from tapebench import env as envs
from tapebench.agents.api import Agent, Env
from tapebench.exam.policy import Policy, blind
from tapebench.physics import evidence
from tapebench.physics.evidence import Evidence
from tapebench.physics.space import Space
from tapebench.tasks.layout import Layout

NEVER = 2.0
"""A time past any: before the first observation."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class InformedState:
    """An episode in progress, and what is given about its rule."""

    inner: envs.EnvState
    evidence: Evidence
    cells: Float32[Array, "*B L"]
    """As they were observed last."""


@dataclass(frozen=True)
class InformedEnv:
    """`tapebench.env.TapeEnv` with the context at the end of every observation."""

    env: envs.TapeEnv
    is_told: bool
    """Whether the table is given from the start, instead of what was seen of it."""

    @property
    def length(self) -> int:
        return self.env.length

    @property
    def space(self) -> Space:
        return self.env.space

    @property
    def num_actions(self) -> int:
        return self.env.num_actions

    def reset(
        self, key: PRNGKeyArray, params: envs.EnvParams
    ) -> tuple[Float32[Array, " D"], InformedState]:
        obs, inner = self.env.reset(key, params)
        state = InformedState(inner, self._first(inner), Layout(self.length).cells(obs))
        return self._extend(obs, state.evidence), state

    def observe(self, state: InformedState, params: envs.EnvParams) -> Float32[Array, " D"]:
        return self._extend(self.env.observe(state.inner, params), state.evidence)

    def step(
        self,
        key: PRNGKeyArray | None,
        state: InformedState,
        action: Integer[Array, ""],
        params: envs.EnvParams,
    ) -> tuple[
        Float32[Array, " D"], InformedState, envs.Reward, envs.Flag, envs.Flag, dict[str, Any]
    ]:
        """One step; of an episode that has just begun, nothing has been seen."""
        obs, inner, reward, terminated, truncated, info = self.env.step(
            key, state.inner, action, params
        )
        cells = Layout(self.length).cells(obs)
        shown = self._watch(state, action, Layout(self.length).cells(info["final_observation"]))
        known = envs.renew(terminated | truncated, shown, self._first(inner))
        final = self._extend(info["final_observation"], shown)
        return (
            self._extend(obs, known),
            InformedState(inner, known, cells),
            reward,
            terminated,
            truncated,
            info | {"final_observation": final},
        )

    def _watch(self, state: InformedState, action: Array, after: Array) -> Evidence:
        known = state.evidence
        return known if self.is_told else watch(self.env, known, state.cells, action, after)

    def _first(self, inner: envs.EnvState) -> Evidence:
        if self.is_told:
            return evidence.everything(self.env.family, inner.rule)
        return jax.tree.map(jnp.asarray, evidence.nothing(self.env.family))

    @staticmethod
    def _extend(obs: Array, known: Evidence) -> Array:
        return jnp.concatenate([obs, known.numbers()], axis=-1)


class Memory(NamedTuple):
    """What the policy of B episodes remembers."""

    inner: Any
    evidence: Evidence
    cells: Float32[Array, "B L"]
    """As they were observed last."""
    time: Float32[Array, " B"]
    """Of the last observation; `NEVER` before the first."""
    action: Integer[Array, " B"]
    """What was done there."""


def inform(
    context: str, env: Env, params: envs.EnvParams, make: Callable[[Any, envs.EnvParams], Agent]
) -> Agent:
    """The agent that `make` builds for an environment, given this context.

    `make` gets an environment whose observations end with the context.
    """
    if context == "none":
        return make(env, params)
    is_told = context == "rule"
    if not is_told and bool(np.any(params.hidden)):
        raise ValueError("context 'evidence' needs every cell observed: leave out the mask")
    agent = make(InformedEnv(env, is_told), params)

    def policy(state: Any) -> Policy:
        return inform_policy(agent.policy(state), env, is_told)

    return replace(agent, policy=policy)


def network_inputs(env: Env) -> dict[str, Any]:
    """What `nn.make` has to know of the context at the end of this environment's observations."""
    if not isinstance(env, InformedEnv):
        return {}
    return {"family": env.env.family}


def inform_policy(policy: Policy, env: envs.TapeEnv, is_told: bool) -> Policy:
    """A policy of `InformedEnv`, for exams in `env`: it keeps the context in its memory."""
    family, length = env.family, env.length

    def init(rule: Any, num: int) -> Memory:
        if is_told:
            known = evidence.everything(family, jnp.asarray(rule))
        else:
            known = jax.tree.map(jnp.asarray, evidence.nothing(family, num))
        return Memory(
            inner=policy.init(None, num),
            evidence=known,
            cells=jnp.zeros((num, length)),
            time=jnp.full(num, NEVER),
            action=jnp.zeros(num, jnp.int32),
        )

    informed = replace(
        policy,
        init=init,
        act=_actor(policy.act, env, is_told),
        note=_note if policy.note is None else _noted(policy.note),
        recall=recall,
        sees_rule=True,
    )
    return informed if is_told else blind(informed)


def recall(memory: Memory) -> Float32[Array, "B numbers"]:
    """The `recall` of the policy: the context."""
    return memory.evidence.numbers()


@cache
def _actor(act: Any, env: envs.TapeEnv, is_told: bool) -> Any:
    """The `act` of an informed policy, the same function for the same agent."""
    layout = Layout(env.length)

    def look(memory: Memory, time: Array, cells: Array) -> Evidence:
        shown = watch(env, memory.evidence, memory.cells, memory.action, cells)
        # Time stands still where an episode is over, and goes back where the next one starts.
        happened = (time > memory.time)[:, None]
        return jax.tree.map(lambda new, old: jnp.where(happened, new, old), shown, memory.evidence)

    def act_informed(memory: Memory, obs: Array, stream: Any) -> tuple[Memory, Array]:
        time, cells = layout.time(obs), layout.cells(obs)
        known = memory.evidence if is_told else look(memory, time, cells)
        informed = jnp.concatenate([obs, known.numbers()], axis=-1)
        inner, action = act(memory.inner, informed, stream)
        return Memory(inner, known, cells, time, action), action

    return act_informed


def _note(memory: Memory, action: Array) -> Memory:
    return memory._replace(action=action)


@cache
def _noted(note: Any) -> Any:
    return lambda memory, action: memory._replace(inner=note(memory.inner, action), action=action)


def watch(
    env: envs.TapeEnv,
    known: Evidence,
    cells: Float32[Array, "*B L"],
    action: Integer[Array, "*B"],
    after: Float32[Array, "*B L"],
) -> Evidence:
    """The evidence after a flip of one of `cells` led to `after`."""
    flipped = evidence.flip(cells, action)
    return evidence.show(known, flipped, after, env.family, env.space)
