"""Families of laws by name: the only place that knows them all."""

from __future__ import annotations

from tapebench.physics.families.elementary import ELEMENTARY
from tapebench.physics.family import Family

FAMILIES: dict[str, Family] = {family.name: family for family in (ELEMENTARY,)}
