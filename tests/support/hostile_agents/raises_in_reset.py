r"""both: reset\(.*\) failed: KeyError"""


class Agent:
    def reset(self, num_envs):
        raise KeyError("weights")

    def act(self, obs):
        return obs


make = Agent
