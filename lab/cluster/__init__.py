"""A Kubernetes cluster beside the lab's nodes: a real control plane here, and a stand-in for the kubelets."""
