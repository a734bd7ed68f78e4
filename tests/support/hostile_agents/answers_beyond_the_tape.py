r"""both: act\(\) chose cell 8: cells are 0 to 7"""

import numpy as np


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return np.full(len(obs), 8)


make = Agent
