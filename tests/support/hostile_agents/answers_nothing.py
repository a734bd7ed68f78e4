r"""both: act\(\) gave"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return None


make = Agent
