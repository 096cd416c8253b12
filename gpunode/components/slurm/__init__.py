"""A Slurm node: which GPUs slurmd offers, by files that the site's own include."""
