"""A Stable-Baselines3 model takes the exam.

    cd examples
    tape evaluate sb3_agent:make --length 8

The adapter is the class; `make` trains a small PPO on the training rules in some seconds. With a
model of your own, load it there instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO

from tapebench.sb3 import TapeVecEnv


class Adapter:
    def __init__(self, model: Any) -> None:
        self.model = model

    def reset(self, num_envs: int) -> None:
        pass

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self.model.predict(obs, deterministic=True)[0]


def make(steps: int = 20_000) -> Adapter:
    """A PPO trained on eight cells, as an agent."""
    torch.set_num_threads(1)  # networks this small gain nothing from more
    env = TapeVecEnv(16, length=8, horizon=8, rules="train")
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=256, seed=0, device="cpu")
    return Adapter(model.learn(steps))
