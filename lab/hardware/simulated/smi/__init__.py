"""The fixture nvidia-smi: SIMULATED, in the words of the real one (550 was run on a stub library to learn them)."""
