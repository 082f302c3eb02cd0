"""The default backend. In: a captured graph and its example inputs. Out: a callable."""
