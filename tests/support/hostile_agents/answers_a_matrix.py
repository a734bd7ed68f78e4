r"""both: act\(\) gave shape \(\d+, 1\) for"""


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        return obs[:, :1].astype(int)


make = Agent
