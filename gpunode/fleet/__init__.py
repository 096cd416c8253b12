"""What drives many nodes: inventories, drift, rollouts, test machines of CI, reports."""
