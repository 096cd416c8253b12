"""containerd: its actual state (`state`), the decision (`decide`), and the texts of its files (`editor`, `drop_in`)."""
