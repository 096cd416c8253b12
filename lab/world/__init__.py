"""What the repositories of NVIDIA, Docker and the distributions contain: tables of facts, each with its source."""
