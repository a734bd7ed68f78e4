"""Families of laws by name: the only place that knows them all."""

from __future__ import annotations

from tapebench.base.names import one_of
from tapebench.physics.families.elementary import ELEMENTARY
from tapebench.physics.families.life import LIFE
from tapebench.physics.families.ring2 import RING2
from tapebench.physics.family import Family

FAMILIES: dict[str, Family] = {family.name: family for family in (ELEMENTARY, RING2, LIFE)}


def get(name: str) -> Family:
    """The family of this name; an unknown one suggests the nearest."""
    return FAMILIES[one_of("family", name, FAMILIES)]
