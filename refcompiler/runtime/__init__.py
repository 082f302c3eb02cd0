"""What runs at a call. In: the user's arguments. Out: the answer of a plan whose guards hold.

``entry`` makes wrappers with the user's signature, ``site`` keeps the plans of a code object,
``drive`` runs what follows a graph break, ``module`` wraps ``nn.Module``, ``api`` is the surface.
"""
