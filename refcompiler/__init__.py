"""The front end: bytecode -> capture -> guards + graph + plan -> backend."""
