r"""apart: its process was ended by signal 11 during act\(\)"""

import ctypes


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        ctypes.string_at(0)


make = Agent
