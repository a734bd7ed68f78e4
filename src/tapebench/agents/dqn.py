"""Double DQN: Mnih et al. 2015 with the target of van Hasselt et al. 2016.

    y = r_1 + … + γⁿ⁻¹ r_n + γⁿ (1 − end) Q⁻(s', argmax_a Q(s', a))   L = mean Huber(Q(s, a) − y)

where s' comes n = `n_step` steps after s, or fewer where no more have been played. Q⁻ is a copy of
Q that is renewed every `target_every` updates. An episode ends by success or at the horizon; t/H
is observed, so the horizon is a true end and nothing is bootstrapped over it.

Deviations from Mnih et al.:

1. the action of the next state is chosen by Q and valued by Q⁻ (`double=False` undoes it);
2. several environments step together, and the updates due for these steps follow at once;
3. Adam instead of RMSProp, at a rate that falls on a straight line; rewards are not clipped, the
   loss is Huber as theirs;
4. the horizon is an end, see above;
5. the network is a dueling one, Q(s, a) = V(s) + A(s, a) − mean A(s, ·), since the hidden rule
   moves the return of every action alike and far more than the action does (`dueling=False`
   undoes it);
6. targets look n steps ahead instead of one, as in Rainbow (Hessel et al. 2018) and like there
   without regard to the exploration in between (`n_step=1` undoes it).

RAD is this with `augment`, CURL with `auxiliary`; PEARL and DRQN bring an `Algorithm` of their own
into the same loop, which is the second half of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import ArrayLike, Float32, Int32, Integer, Key, PRNGKeyArray

from tapebench import env as envs
from tapebench.agents import loop, nn, replay
from tapebench.agents.api import (
    Agent,
    Env,
    check_counts,
    check_positive,
    check_shares,
    gradient_step,
    learning_rate,
    observation_size,
    snapshot,
)
from tapebench.agents.context import inform, network_inputs
from tapebench.agents.replay import Batch, Replay
from tapebench.base.names import one_of
from tapebench.exam.policy import Policy
from tapebench.stats import CONTEXTS


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every agent that learns in this loop has; `Config` adds what is DQN's alone."""

    SMALL: ClassVar[Mapping[str, Any]] = {
        "width": 32,
        "channels": 8,
        "discount": 0.95,
        "depth": 1,
        "batch": 32,
        "replay_size": 2_000,
        "warmup": 100,
        "learning_rate": 3e-3,
        "target_every": 50,
        "num_envs": 4,
    }
    """Options for short tapes: few weights, short chunks. Tests train agents of this size."""
    SEARCH: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "channels": (16, 32),
        "depth": (2, 3),
        "layer_norm": (False, True),
        "learning_rate": (5e-4, 1e-3, 2e-3),
        "discount": (0.9, 1.0),
        "n_step": (1, 2, 4),
        "target_every": (100, 300, 1000),
        "steps_per_update": (2, 4, 8),
        "batch": (128, 256),
        "replay_size": (50_000, 200_000),
        "epsilon_end": (0.05, 0.2),
    }
    """Values to search when tuning; a variant searches what it adds, see `tools/tune.py`."""
    LATER: ClassVar[Mapping[str, Any]] = {"layer_norm": False}
    """Options that came later, with what agents did before: a stored config without them means
    this."""

    METRICS: ClassVar[Mapping[str, str]] = {
        **loop.METRICS,
        "epsilon": "Share of random actions at the end of the chunk.",
        "learning_rate": "Of Adam at the end of the chunk.",
        "loss": "Huber loss of the temporal-difference errors.",
    }
    """What training reports for every chunk; means over its updates, unless it says otherwise."""

    network: str = "conv"
    """`conv`: periodic convolutions, which commute with shifts; `mlp`: fully connected."""
    width: int = 64
    """Units of a hidden layer of `mlp`."""
    channels: int = 16
    """Units of a hidden layer of `conv` in each cell."""
    depth: int = 2
    """Hidden layers."""
    kernel: int = 3
    """Cells that a convolution of `conv` sees, along each side."""
    discount: float = 1.0
    """Per-step discount γ. The horizon is a true end, since the observation carries t/H."""
    n_step: int = 2
    """Steps whose rewards a target adds up before it relies on the target network."""
    learning_rate: float = 5e-4
    """Of Adam, at the start."""
    final_rate: float = 0.1
    """Share of the learning rate that is left after `total_steps`."""
    total_steps: int = 200_000
    """Environment steps over which the learning rate falls, from the end of `warmup` on; a run sets
    them to its budget."""
    batch: int = 256
    """Transitions in an update."""
    steps_per_update: int = 4
    """Environment steps for each update."""
    replay_size: int = 50_000
    """Transitions kept."""
    warmup: int = 1_000
    """Environment steps before the first update."""
    epsilon_start: float = 1.0
    """Share of random actions at the start."""
    epsilon_end: float = 0.2
    """Share of random actions in the end."""
    epsilon_steps: int = 20_000
    """Environment steps from the one to the other, on a straight line."""
    target_every: int = 1_000
    """Updates between renewals of the target network."""
    layer_norm: bool = False
    """Whether hidden layers are normalised (Ba et al. 2016)."""
    dueling: bool = True
    """Learn what a state is worth apart from how actions differ in it (Wang et al. 2016)."""
    double: bool = True
    """Choose the next action by the network that learns, not by the target network."""
    num_envs: int = 8
    """Environments that step together; each step of each one counts."""
    chunk: int = 1_000
    """Environment steps in one call of `train`."""

    networks: ClassVar[tuple[str, ...]] = nn.NETWORKS
    """What `network` may be."""

    def __post_init__(self) -> None:
        one_of("network", self.network, self.networks)
        check_counts(self, "width", "channels", "depth", "kernel", "batch", "n_step")
        check_counts(
            self, "replay_size", "warmup", "epsilon_steps", "target_every", "num_envs", "chunk"
        )
        check_counts(self, "steps_per_update", "total_steps")
        check_shares(self, "discount", "epsilon_start", "epsilon_end", "final_rate")
        check_positive(self, "learning_rate")
        large, small = self.stride, min(self.num_envs, self.steps_per_update)
        if large % small:
            raise ValueError(f"num_envs and steps_per_update: {small} must divide {large}")
        if self.chunk % large:
            raise ValueError(f"chunk must be a multiple of {large}, not {self.chunk}")
        if self.replay_size < self.num_envs:
            raise ValueError(f"replay_size must be at least num_envs, {self.num_envs}")

    @property
    def stride(self) -> int:
        """Environment steps after which the same pattern of steps and updates repeats."""
        return max(self.num_envs, self.steps_per_update)


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    LATER: ClassVar[Mapping[str, Any]] = {**Options.LATER, "context": "none"}
    """See `Options`."""

    context: str = "none"
    """What is given about the rule: `none`; `evidence`: the entries of its table that the episode
    has shown; `rule`: all of them, which is privileged. See `tapebench.agents.context`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("context", self.context, CONTEXTS)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """Parameters and the optimiser state."""

    network: Any
    """A network, or a model that remembers and holds one."""
    target: Any
    """What it was at the last renewal."""
    extra: Any
    """Parameters of the auxiliary loss; they are learned too."""
    slow: Any
    """What follows the network slowly for the auxiliary loss."""
    optimiser: optax.OptState
    updates: Int32[Array, ""]


Augment = Callable[[Array, Batch], Batch]
"""Key and batch -> the batch to learn from instead. A function that stays the same."""


@dataclass(frozen=True)
class Auxiliary:
    """A loss that is added to DQN's. Made once, as compiled programs belong to it."""

    init: Callable[[Array, nn.Network], tuple[Any, Any]]
    """Key and network -> `extra`, learned along with the network, and `slow`, which follows it."""
    loss: Callable[[Array, nn.Network, Any, Any, Batch], Array]
    """Key, network, `extra`, `slow` and the batch -> what is added."""
    follow: Callable[[Any, nn.Network], Any]
    """`slow` and the network after an update -> `slow`."""


def epsilon(config: Any, steps: Integer[Array, ""]) -> Float32[Array, ""]:
    """The share of random actions after so many environment steps."""
    done = jnp.clip(steps / config.epsilon_steps, 0.0, 1.0)
    return config.epsilon_start + done * (config.epsilon_end - config.epsilon_start)


def explore(
    key: PRNGKeyArray, values: Float32[Array, "E A"], share: Float32[Array, ""]
) -> Int32[Array, " E"]:
    """Epsilon-greedy actions; `share` is epsilon."""
    action, coin = jax.random.bits(key, (2, len(values)))
    is_random = (coin >> 8).astype(jnp.float32) * 2.0**-24 < share
    random = (action % values.shape[-1]).astype(jnp.int32)
    return jnp.where(is_random, random, values.argmax(axis=-1))


def bellman(
    config: Options, batch: Batch, chooser: Float32[Array, "B A"], judge: Float32[Array, "B A"]
) -> Float32[Array, " B"]:
    """Double-DQN targets, from next-state values of the network and its target."""
    next_action = (chooser if config.double else judge).argmax(axis=-1)
    ahead = jnp.where(batch.ended, 0.0, action_values(judge, next_action))
    worth = jnp.float32([config.discount**steps for steps in range(1 + config.n_step)])
    return jax.lax.stop_gradient(batch.reward + worth[batch.steps] * ahead)


def optimiser(config: Options, updates: Integer[ArrayLike, ""]) -> optax.GradientTransformation:
    """Adam at the rate of this update. Its state does not depend on the rate."""
    return optax.chain(optax.scale_by_adam(), optax.scale(-rate(config, updates)))


def rate(config: Options, updates: Integer[ArrayLike, ""]) -> Float32[Array, ""]:
    """The learning rate of this update."""
    return learning_rate(config, jnp.asarray(updates) * config.steps_per_update)


def action_values(
    values: Float32[Array, "B A"], action: Integer[Array, " B"]
) -> Float32[Array, " B"]:
    """Values of the chosen actions."""
    return jnp.take_along_axis(values, action[:, None], axis=-1)[:, 0]


def td_loss(
    config: Options, network: nn.Network, target: nn.Network, batch: Batch
) -> Float32[Array, ""]:
    """The Huber loss of the temporal-difference errors of a batch."""
    fixed = jax.lax.stop_gradient(network)
    # Without `double` nobody looks at the first of the two, and it is not computed.
    y = bellman(config, batch, fixed(batch.next_obs), target(batch.next_obs))
    return optax.huber_loss(action_values(network(batch.obs), batch.action), y).mean()


def make(config: Config, env: Env, params: envs.EnvParams) -> Agent:
    """Build Double DQN for this environment."""
    return inform(config.context, env, params, partial(make_variant, config))


def make_variant(
    config: Options,
    env: Env,
    params: envs.EnvParams,
    *,
    name: str = "dqn",
    augment: Augment | None = None,
    auxiliary: Auxiliary | None = None,
) -> Agent:
    """Build Double DQN, or one with another `augment` or `auxiliary`, for this environment."""
    size = observation_size(env, params)
    return build(config, env, params, _algorithm(name, config, env, size, augment, auxiliary))


@cache
def _algorithm(
    name: str,
    config: Options,
    env: Env,
    size: int,
    augment: Augment | None,
    auxiliary: Auxiliary | None,
) -> Algorithm:
    def init(key: Array) -> Learner:
        network_key, extra_key = jax.random.split(key)
        network = make_network(network_key, config.network, config, env, size)
        extra, slow = auxiliary.init(extra_key, network) if auxiliary else ((), ())
        return Learner(
            network=network,
            target=jax.tree.map(jnp.copy, network),
            extra=extra,
            slow=jax.tree.map(jnp.copy, slow),
            optimiser=optimiser(config, 0).init((network, extra)),
            updates=jnp.int32(0),
        )

    def values(
        key: Array, learner: Learner, stored: Replay, memory: Any, obs: Array
    ) -> tuple[Any, Array]:
        return memory, learner.network(obs)

    def update(key: Array, learner: Learner, stored: Replay) -> tuple[Learner, dict[str, Array]]:
        draw_key, augment_key, extra_key = jax.random.split(key, 3)
        places = replay.sample_transitions(draw_key, stored, config.batch)
        drawn = replay.take(stored, places, config.n_step, config.discount)
        batch = augment(augment_key, drawn) if augment else drawn

        def loss(learned: tuple[nn.Network, Any]) -> tuple[Array, dict[str, Array]]:
            network, extra = learned
            parts = {"loss": td_loss(config, network, learner.target, batch)}
            if auxiliary:
                parts["auxiliary_loss"] = auxiliary.loss(
                    extra_key, network, extra, learner.slow, drawn
                )
            return jnp.stack(list(parts.values())).sum(), parts

        learned = (learner.network, learner.extra)
        updates = learner.updates + 1
        (network, extra), optimiser_state, parts = gradient_step(
            optimiser(config, updates), loss, learned, learner.optimiser
        )
        return Learner(
            network=network,
            target=optax.periodic_update(network, learner.target, updates, config.target_every),
            extra=extra,
            slow=auxiliary.follow(learner.slow, network) if auxiliary else (),
            optimiser=optimiser_state,
            updates=updates,
        ), parts

    def begin(learner: Learner, num: int) -> nn.Network:
        return learner.network

    def act(network: nn.Network, obs: Array, key: Array) -> tuple[nn.Network, Array]:
        return network, network(obs).argmax(axis=-1)

    return Algorithm(name, init, values, update, begin, act)


# What the value-based agents share: networks by config, and the loop of steps and updates.


@dataclass(frozen=True)
class Algorithm:
    """The parts of the loop that differ between agents.

    To be made once for a config (`functools.cache`): the compiled programs belong to it.
    """

    name: str
    init: Callable[[Array], Any]
    """Key -> learner, a pytree of arrays."""
    values: Callable[[Array, Any, Replay, Any, Array], tuple[Any, Array]]
    """Key, learner, replay, memory of play and observations `[E, D]` -> the memory after them, and
    action values `[E, A]` to explore by."""
    update: Callable[[Array, Any, Replay], tuple[Any, dict[str, Array]]]
    """Key, learner and replay -> the learner after one update, and scalars to watch."""
    begin: Callable[[Any, int], Any]
    """Learner and number of episodes -> the memory of its policy."""
    act: Callable[[Any, Array, Array], tuple[Any, Array]]
    """The `act` of its policy."""
    note: Callable[[Any, Array], Any] | None = None
    """The `note` of its policy, where it remembers its actions."""
    recall: Callable[[Any], Array] | None = None
    """The `recall` of its policy, where it remembers anything."""
    start: Callable[[int], Any] = lambda num: ()
    """Number of environments -> the memory of play before any observation."""
    mark: Callable[[Any, Array], Any] = lambda memory, action: memory
    """Memory of play and the actions `[E]` that were taken -> memory."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """A run between two chunks."""

    learner: Any
    replay: Replay
    env: Any
    """The environments' states, `[E]`."""
    key: Key[Array, ""]
    steps: Int32[Array, ""]
    """Environment steps so far."""
    memory: Any = ()
    """What play remembers of the environments, before their present observations."""


def build(config: Options, env: Env, params: envs.EnvParams, algorithm: Algorithm) -> Agent:
    """The agent that runs `algorithm` in the loop below."""

    def policy(state: State) -> Policy:
        return snapshot(
            algorithm.name,
            state.learner,
            algorithm.begin,
            algorithm.act,
            algorithm.note,
            algorithm.recall,
        )

    return Agent(
        name=algorithm.name,
        chunk=config.chunk,
        init=partial(_init, config, env, algorithm, params),
        train=partial(_train, config, env, algorithm, params),
        policy=policy,
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _init(
    config: Options, env: Env, algorithm: Algorithm, params: envs.EnvParams, key: Array
) -> State:
    learner_key, env_key, key = jax.random.split(key, 3)
    keys = jax.random.split(env_key, config.num_envs)
    obs, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    horizon = jnp.copy(params.horizon)
    return State(
        learner=algorithm.init(learner_key),
        replay=replay.empty(obs, config.replay_size, env.length, horizon),
        env=state,
        key=key,
        steps=jnp.int32(0),
        memory=algorithm.start(config.num_envs),
    )


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def _train(
    config: Options, env: Env, algorithm: Algorithm, params: envs.EnvParams, state: State
) -> tuple[State, dict[str, Array]]:
    """`chunk` environment steps, and an update for every `steps_per_update` of them."""
    step = jax.vmap(env.step, in_axes=(None, 0, 0, None))

    def play(carry: tuple[State, Array], _: None) -> Any:
        """One step of every environment."""
        state, obs = carry
        key, value_key, explore_key = jax.random.split(state.key, 3)
        memory, values = algorithm.values(value_key, state.learner, state.replay, state.memory, obs)
        action = explore(explore_key, values, epsilon(config, state.steps))
        obs, after, reward, terminated, truncated, _info = step(None, state.env, action, params)
        state = replace(
            state,
            replay=replay.append(state.replay, action, reward, obs),
            env=after,
            key=key,
            steps=state.steps + config.num_envs,
            memory=algorithm.mark(memory, action),
        )
        return (state, obs), loop.step_metrics(reward, terminated, truncated)

    def due(state: State) -> Array:
        return jnp.where(state.steps >= config.warmup, config.stride // config.steps_per_update, 0)

    obs = jax.vmap(env.observe, in_axes=(0, None))(state.env, params)
    state, outcomes, means = loop.replay_loop(
        state,
        obs,
        play,
        algorithm.update,
        due,
        plays=config.stride // config.num_envs,
        rounds=config.chunk // config.stride,
    )
    metrics = loop.totals(outcomes, config.chunk)
    metrics["epsilon"] = epsilon(config, state.steps)
    metrics["learning_rate"] = rate(config, state.learner.updates)
    return state, metrics | means


def make_network(
    key: PRNGKeyArray, kind: str, config: Any, env: Env, size: int, **inputs: Any
) -> nn.Network:
    """A network for action values, of any config that has its sizes; `inputs` are options of
    `nn.make` that say what it is given beside observations of this size."""
    return nn.make(
        key,
        kind,
        space=env.space,
        num_actions=env.num_actions,
        width=config.width,
        channels=config.channels,
        depth=config.depth,
        kernel=config.kernel,
        dueling=config.dueling,
        layer_norm=config.layer_norm,
        **{"observation_size": size, **network_inputs(env), **inputs},
    )
