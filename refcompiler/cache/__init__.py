"""What compilations made, kept on disk for later processes.

In: a kind (``"kernel"``), a key (:func:`~refcompiler.cache.store.key_of` everything that the bytes
depend on) and bytes. Out: the same bytes, in this process or another, or None. ``folder`` decides
where they are, and whether that place is safe; ``store`` keeps them; ``artifacts`` moves them to
another machine; ``identity`` is what every key of this release begins with. Nothing that is read
is unpickled or run as Python.
"""
