r"""apart: its process was ended by signal 9 during act\(\)"""

import os
import signal


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        os.kill(os.getpid(), signal.SIGKILL)


make = Agent
