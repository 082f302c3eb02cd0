"""Regions: what capture makes a graph of its own inside the graph, and the nodes that run it."""
