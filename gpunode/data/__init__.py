"""Numbers that the field states, as data with their sources; gpunode/tables reads them."""
