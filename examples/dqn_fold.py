"""A row of a leaderboard by DQN in one file, in the manner of CleanRL, in PyTorch.

    for fold in 0 1 2 3 4; do python examples/dqn_fold.py --fold $fold --out board/dqn; done
    tape board board

A row of the track `core` is five bundles, each by an agent that was trained without the rules of
its fold. The observation carries t/H, so the horizon is a true terminal: nothing is bootstrapped
over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from gymnasium.vector import AutoresetMode
from torch import nn

import tapebench
from tapebench.gym import TapeVectorEnv


@dataclass(frozen=True, kw_only=True)
class Config:
    fold: int = 0
    """Which fold is held out."""
    steps: int = 200_000
    """Environment steps of training: as many as our own agents have on core."""
    seed: int = 0
    out: Path = Path("board/dqn")
    """Where the bundle goes."""
    num_envs: int = 16
    learning_rate: float = 5e-4
    discount: float = 0.99
    buffer: int = 50_000
    batch: int = 256
    learning_starts: int = 1_000
    target_every: int = 2_000
    """Environment steps between copies to the target network."""
    exploration: float = 0.5
    """Share of the steps over which epsilon falls from 1 to 0.05."""


class Agent:
    """A Q-network as an agent: the greedy cell for each row."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def reset(self, num_envs: int) -> None:
        pass

    def act(self, obs: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.network(torch.from_numpy(obs)).argmax(1).numpy()


def make_network(inputs: int, actions: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, actions)
    )


def train(config: Config) -> Agent:
    """DQN on the training rules of a fold."""
    torch.set_num_threads(1)  # networks this small gain nothing from more
    torch.manual_seed(config.seed)
    rng = np.random.default_rng(config.seed)
    env = TapeVectorEnv(
        config.num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
        length=9,
        horizon=4,
        split=f"folds-{config.fold}",
        rules="train",
    )
    actions = env.task.length
    inputs = actions + 1  # the cells and t/H
    network, target = make_network(inputs, actions), make_network(inputs, actions)
    target.load_state_dict(network.state_dict())
    optimiser = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    agent = Agent(network)

    before, after = (np.zeros((config.buffer, inputs), np.float32) for _ in range(2))
    chosen, reward = np.zeros(config.buffer, np.int64), np.zeros(config.buffer, np.float32)
    ended = np.zeros(config.buffer, np.float32)

    obs, _ = env.reset(seed=config.seed)
    for step in range(0, config.steps, config.num_envs):
        epsilon = max(0.05, 1 - 0.95 * step / (config.exploration * config.steps))
        is_random = rng.random(config.num_envs) < epsilon
        action = np.where(is_random, rng.integers(actions, size=config.num_envs), agent.act(obs))
        following, rewards, terminated, truncated, info = env.step(action)
        done = terminated | truncated
        final = following.copy()
        if done.any():
            final[done] = np.stack(info["final_obs"][done])
        places = (step + np.arange(config.num_envs)) % config.buffer
        before[places], after[places], chosen[places] = obs, final, action
        reward[places], ended[places] = rewards, done
        obs = following

        filled = min(step + config.num_envs, config.buffer)
        if filled < config.learning_starts:
            continue
        rows = rng.integers(filled, size=config.batch)
        with torch.no_grad():
            best = target(torch.from_numpy(after[rows])).max(1).values
            goal = torch.from_numpy(reward[rows])
            goal += config.discount * best * (1 - torch.from_numpy(ended[rows]))
        value = network(torch.from_numpy(before[rows]))
        value = value.gather(1, torch.from_numpy(chosen[rows])[:, None])[:, 0]
        loss = nn.functional.mse_loss(value, goal)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step % config.target_every < config.num_envs:
            target.load_state_dict(network.state_dict())
    return agent


def make(fold: int = 0, steps: int = 200_000, seed: int = 0) -> Agent:
    """For `tape evaluate "examples/dqn_fold.py:make(fold=2)" --track core --split folds-2`."""
    return train(Config(fold=fold, steps=steps, seed=seed))


def main(config: Config) -> Path:
    """Train on a fold, sit its exam, write the bundle."""
    exam = {"track": "core", "split": f"folds-{config.fold}"}
    outcome = tapebench.evaluate(train(config), name="torch-dqn", **exam)
    config.out.mkdir(parents=True, exist_ok=True)
    path = config.out / f"torch-dqn-{config.fold}-{config.seed}.tape"
    outcome.write_bundle(path)
    return path


if __name__ == "__main__":
    print(main(tyro.cli(Config)))
