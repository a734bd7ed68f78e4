"""The world without an agent: cells, families of rules, and what can be reached at all."""
