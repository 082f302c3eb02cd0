"""Packages: compiled programs as files that another process loads and runs.

In: a plan (guards, generated body, graph, what the backend made). Out: bytes, and the same again.
Nothing that is read is unpickled. ``format`` is the file: versions, a digest, rows as JSON, and
blobs. A value is a row of a listed kind (``rows``); a function, class or module is its name, and
the digest of its code where it is the user's (``names``); a graph is its nodes (``graphs``);
guards are printed anew from their rows (``plans``). Text that runs between kernels (``text``) may
name nothing but what rows give. What ahead-of-time autograd makes is in ``programs``; a backend
says for itself how its code is packed (``packages``, an attribute that names the module).
"""
