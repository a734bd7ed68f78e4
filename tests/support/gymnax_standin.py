"""As much of gymnax as `tapebench.gymnax` takes from it, for tests where it is not installed.

What gymnax itself and its clients make of the adapter is tested with the real packages, by
`make clients`.
"""

from importlib.util import find_spec
from types import ModuleType, SimpleNamespace


class Environment:
    pass


class Discrete:
    def __init__(self, num_categories):
        self.n = num_categories


class Box:
    def __init__(self, low, high, shape, dtype):
        self.low, self.high, self.shape, self.dtype = low, high, shape, dtype


class Dict:
    def __init__(self, spaces):
        self.spaces = spaces


def modules():
    """What `sys.modules` lacks; nothing where the real one is installed."""
    if find_spec("gymnax"):
        return {}
    gymnax, inner = ModuleType("gymnax"), ModuleType("gymnax.environments")
    factories = {}
    gymnax.registered_envs, gymnax.register = factories, factories.__setitem__
    gymnax.environments = inner
    inner.environment = SimpleNamespace(Environment=Environment)
    inner.spaces = SimpleNamespace(Discrete=Discrete, Box=Box, Dict=Dict)
    return {"gymnax": gymnax, "gymnax.environments": inner}
