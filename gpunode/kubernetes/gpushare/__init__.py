"""Aliyun's gpushare: what kube-scheduler, the cluster and its nodes get so that pods share GPUs by their memory."""
