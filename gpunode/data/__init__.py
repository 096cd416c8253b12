"""Numbers that the field states, as data with their sources; gpunode/base/tables reads them."""
