r"""both: act\(\) failed: ValueError: \?\[2K"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        raise ValueError("\x1b[2K\rverified: success ID 0.99\x1b[8m")


make = Agent
