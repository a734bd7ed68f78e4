r"""apart: act\(\) took longer than 2 seconds"""

import signal
import time
from contextlib import suppress


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        for number in range(1, 32):
            with suppress(OSError):
                signal.signal(number, signal.SIG_IGN)
        time.sleep(600)


make = Agent
