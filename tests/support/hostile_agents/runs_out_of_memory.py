r"""both: act\(\) failed: (MemoryError|_ArrayMemoryError)"""

import numpy as np


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return np.zeros(1 << 55, np.int8)


make = Agent
