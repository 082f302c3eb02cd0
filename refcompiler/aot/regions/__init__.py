"""Regions of a graph while it is traced: what has graphs of its own among its arguments.

checkpoint   a part that is computed again in the backward
inner        what the next two are made of: graphs within a graph
branches     ``torch.cond``
loops        ``scan`` and ``map`` over a dimension
repeats      ``torch.while_loop``
diagonals    ``fill_diagonal_`` of a view
products     ``prod``, whose derivative asks for values
spectra      ``svdvals`` and others, which compute no vectors that nobody asks for
windows      ``istft``, which looks at whether its windows overlap
unrolled     branches and loops of a graph that runs again, for second derivatives
table        which of them stands for what
"""
