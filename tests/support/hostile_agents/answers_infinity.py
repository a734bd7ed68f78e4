r"""both: act\(\) gave inf for an action"""

import numpy as np


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return np.full(len(obs), np.inf)


make = Agent
