r"""both: act\(\) failed: SystemExit: 0"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        raise SystemExit(0)


make = Agent
