"""Elementary rules as rules of radius 2: an oracle for all that is computed of those."""


def embedded(rule):
    """The radius-2 rule that ignores the two outer cells; for an integer or an array of them."""
    inner = [(entry >> 1) & 7 for entry in range(32)]
    return sum(((rule >> read) & 1) << entry for entry, read in enumerate(inner))
