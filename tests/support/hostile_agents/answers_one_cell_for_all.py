r"""both: act\(\) gave shape \(\) for"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return 0


make = Agent
