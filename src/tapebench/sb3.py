"""The environment for Stable-Baselines3 (extra `sb3`): a native `VecEnv` over the NumPy one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from tapebench.gym import TapeVectorEnv

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:  # pragma: no cover - exercised in a venv without the extra
    raise ImportError(
        "tapebench.sb3 needs Stable-Baselines3: pip install 'tapebench[sb3]'"
    ) from error


class TapeVecEnv(VecEnv):
    """`num_envs` tapes for SB3, with the options of `tapebench.gym.TapeEnv`.

    It is `Tape-v1`: the horizon terminates, and SB3 is never asked to bootstrap over it
    (`TimeLimit.truncated` is False).

    The info of an episode's last step has `terminal_observation`, `is_success` and `distance`,
    `rule` if it is revealed, and `episode` as `VecMonitor` gives it (`r` the return, `l` the steps,
    `t` seconds since this environment was made), so that SB3 logs returns and success without a
    wrapper. That of other steps is empty. `set_options` takes one set of reset options for all.
    """

    def __init__(self, num_envs: int, **options: Any) -> None:
        self.env = TapeVectorEnv(
            num_envs, autoreset_mode=AutoresetMode.SAME_STEP, version=1, **options
        )
        self._actions = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._began = time.monotonic()
        super().__init__(num_envs, self.env.single_observation_space, self.env.single_action_space)

    def reset(self) -> np.ndarray:
        if any(options != self._options[0] for options in self._options):
            raise ValueError("reset options must be the same for every environment")
        obs, info = self.env.reset(seed=self._seeds[0], options=self._options[0] or None)
        self.reset_infos = [self._info_of(info, index) for index in range(self.num_envs)]
        self._returns[:], self._lengths[:] = 0, 0
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, rewards, terminated, truncated, info = self.env.step(self._actions)
        dones = terminated | truncated
        self._returns += rewards
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(dones).tolist():
            final = info["final_info"]
            infos[index] = self._info_of(final, index) | {
                "terminal_observation": info["final_obs"][index],
                "TimeLimit.truncated": False,
                "is_success": bool(final["is_success"][index]),
                "episode": {
                    "r": round(float(self._returns[index]), 6),
                    "l": int(self._lengths[index]),
                    "t": round(time.monotonic() - self._began, 6),
                },
            }
        self._returns[dones], self._lengths[dones] = 0, 0
        return obs, rewards, dones, infos

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture of each episode so far; nothing but with `render_mode="rgb_array"`."""
        return self.env.render() or [None] * self.num_envs

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name)] * len(self._indices(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"{attr_name} is fixed: make a new TapeVecEnv with other options")

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        result = getattr(self.env, method_name)(*args, **kwargs)
        return [result] * len(self._indices(indices))

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * len(self._indices(indices))

    def _indices(self, indices: int | Iterable[int] | None) -> Sequence[int]:
        numbers = list(self._get_indices(indices))
        if any(not 0 <= index < self.num_envs for index in numbers):
            raise IndexError(f"environments are 0 to {self.num_envs - 1}, not {numbers}")
        return numbers

    def _info_of(self, info: dict[str, Any], index: int) -> dict[str, Any]:
        own: dict[str, Any] = {"distance": float(info["distance"][index])}
        return own | ({"rule": int(info["rule"][index])} if "rule" in info else {})
