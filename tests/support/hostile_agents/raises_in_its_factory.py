"""both: failed: KeyError: 'weights'"""


def make():
    raise KeyError("weights")
