"""apart: its process ended with exit code|took longer than 2 seconds"""

import os


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        os.closerange(0, 256)
        return obs[:, 0].astype(int)


make = Agent
