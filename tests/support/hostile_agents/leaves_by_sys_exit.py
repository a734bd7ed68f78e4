r"""both: act\(\) failed: SystemExit"""

import sys


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        sys.exit()


make = Agent
