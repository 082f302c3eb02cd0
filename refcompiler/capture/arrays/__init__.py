"""numpy in a frame: arrays are fakes of the memory that they share with tensors."""
