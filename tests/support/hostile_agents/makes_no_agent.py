"""both: gave a int without a method reset"""


def make():
    return 3
