"""The reference pages of docs/, generated from what the code itself says: `python -m gpunode.reference`."""
