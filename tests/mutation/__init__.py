"""Mutants of gpunode: a file with one small change each, which a test that belongs to the file has to notice.

`python -m tests.mutation` makes them, runs the tests and prints the share that survives.
"""
