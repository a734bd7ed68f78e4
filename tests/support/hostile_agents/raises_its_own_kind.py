r"""both: act\(\) failed: Own: mine"""


class Own(BaseException):
    pass


class Agent:
    def reset(self, num_envs):
        pass

    def act(self, obs):
        raise Own("mine")


make = Agent
