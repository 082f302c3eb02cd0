"""Programs of the suite ``models``, one file each: the file's text is what runs and what a repro
script contains, so each imports torch (or transformers) and nothing of this project.
"""
