"""How test input is drawn. In: rows of ``specs.operators``. Out: hypothesis strategies of cases.

Nothing here needs torch: a case is data, and is drawn in the parent process.
"""
