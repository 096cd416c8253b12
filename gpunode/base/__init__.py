"""What every part of gpunode stands on: comparisons, and the decision that they lead to."""
