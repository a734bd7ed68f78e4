r"""apart: act\(\) took longer than 2 seconds"""

import os
import time


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)


make = Agent
