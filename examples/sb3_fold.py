"""Rows of a leaderboard by Stable-Baselines3: PPO, and RecurrentPPO of sb3-contrib.

    python examples/sb3_fold.py --fold 0 --out board/sb3               # a bundle of one fold
    for fold in 0 1 2 3 4; do python examples/sb3_fold.py --fold $fold --out board/sb3; done
    for fold in 0 1 2 3 4; do
      python examples/sb3_fold.py --fold $fold --recurrent --out board/sb3
    done
    tape board board

A row of the track `core` is five bundles, each by an agent that was trained without the rules of
its fold. This shows the scores of one, too:

    tape evaluate "examples/sb3_fold.py:make(fold=0)" --track core --split folds-0
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO

import tapebench
from tapebench.sb3 import TapeVecEnv


class Adapter:
    """A model as an agent. A recurrent one forgets when t/H is back at 0."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def reset(self, num_envs: int) -> None:
        self.state: Any = None

    def act(self, obs: np.ndarray) -> np.ndarray:
        begins = obs[:, -1] == 0
        action, self.state = self.model.predict(obs, self.state, begins, deterministic=True)
        return action


def make(fold: int = 0, steps: int = 200_000, recurrent: bool = False, seed: int = 0) -> Adapter:
    """A model trained on the training rules of a fold, with the library's own defaults but for the
    sizes of rollouts and batches, which suit episodes of four steps."""
    torch.set_num_threads(1)  # networks this small gain nothing from more
    env = TapeVecEnv(32, length=9, horizon=4, split=f"folds-{fold}", rules="train")
    sizes: dict[str, Any] = {"n_steps": 64, "batch_size": 256, "seed": seed, "device": "cpu"}
    model = (
        RecurrentPPO("MlpLstmPolicy", env, **sizes) if recurrent else PPO("MlpPolicy", env, **sizes)
    )
    return Adapter(model.learn(steps))


@dataclass(frozen=True, kw_only=True)
class Config:
    fold: int = 0
    """Which fold is held out."""
    steps: int = 200_000
    """Environment steps of training: as many as our own agents have on core."""
    recurrent: bool = False
    """RecurrentPPO instead of PPO."""
    seed: int = 0
    out: Path = Path("board/sb3")
    """Where the bundle goes."""


def main(config: Config) -> Path:
    """Train on a fold, sit its exam, write the bundle."""
    name = "sb3-recurrent-ppo" if config.recurrent else "sb3-ppo"
    agent = make(config.fold, config.steps, config.recurrent, config.seed)
    outcome = tapebench.evaluate(agent, track="core", split=f"folds-{config.fold}", name=name)
    config.out.mkdir(parents=True, exist_ok=True)
    path = config.out / f"{name}-{config.fold}-{config.seed}.tape"
    outcome.write_bundle(path)
    return path


if __name__ == "__main__":
    print(main(tyro.cli(Config)))
