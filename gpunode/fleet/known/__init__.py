"""Where machines are known already: inventories of Ansible's, a cluster's nodes, Terraform's state, as pyinfra's."""
