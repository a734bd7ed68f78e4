r"""apart: act\(\) took longer than 2 seconds"""

import time


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        time.sleep(600)


make = Agent
