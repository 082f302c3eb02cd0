"""Regions of a graph while it is traced: what has graphs of its own among its arguments.

checkpoint   a part that is computed again in the backward
branches     ``torch.cond`` and ``torch.while_loop``
products     ``prod``, whose derivative asks for values
spectra      ``svdvals`` and others, which compute no vectors that nobody asks for
windows      ``istft``, which looks at whether its windows overlap
table        which of them stands for what
"""
