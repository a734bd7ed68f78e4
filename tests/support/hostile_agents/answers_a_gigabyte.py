"""apart: sent something that is no message|took longer than 2 seconds"""

import numpy as np


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return np.zeros((1 << 30) + 1, np.int8)


make = Agent
