"""A stepper for people: what the interpreter does, instruction by instruction.

In: a function and its arguments (:mod:`target`). Out: before every instruction a view of the frame
(:mod:`view`), printed as a trace (:mod:`trace`) or shown on a terminal that takes commands
(:mod:`session`). The program runs in the interpreter's concrete domain; torch is not needed.
"""
