"""A fuzzer for everything that reads foreign text: `python -m tests.fuzz` changes samples, and keeps what breaks."""
