r"""both: act\(\) gave"""

import numpy as np


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return np.zeros(len(obs), complex)


make = Agent
