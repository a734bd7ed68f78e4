r"""both: act\(\) gave shape \(0,\) for"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return []


make = Agent
