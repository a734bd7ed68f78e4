"""The specification as plain loops: what the packed code is tested against."""


def update(cells, rule):
    """One synchronous update of a list of cells."""
    size = len(cells)
    return [
        (rule >> (4 * cells[i - 1] + 2 * cells[i] + cells[(i + 1) % size])) & 1 for i in range(size)
    ]


def step(cells, cell, rule):
    """Flip one cell, then update."""
    flipped = list(cells)
    flipped[cell] = 1 - flipped[cell]
    return update(flipped, rule)
