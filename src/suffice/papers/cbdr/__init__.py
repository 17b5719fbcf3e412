"""CBDR: Tables 1-3 on models that say what they know, a tiny world whose knowledge is known, and its demonstration."""

__all__: list[str] = []
