r"""both: act\(\) (chose cell|gave)"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return [10**30] * len(obs)


make = Agent
