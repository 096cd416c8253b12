"""A page to look at: the JSON document of drift, plan or rollout as one HTML file that needs no network."""
