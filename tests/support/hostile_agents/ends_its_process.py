r"""apart: its process ended with exit code 3 during act\(\)"""

import os


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        os._exit(3)


make = Agent
