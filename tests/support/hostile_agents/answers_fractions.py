r"""both: act\(\) gave float64: actions are integer cells"""

import numpy as np


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return np.full(len(obs), 0.5)


make = Agent
