r"""apart: act\(\) took longer than 2 seconds"""

import os
import signal


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        os.kill(os.getpid(), signal.SIGSTOP)


make = Agent
