#!/bin/sh
# Have the node's containerd and kubelet begin by the files that the lab has put beside this one.
set -eu
cd /usr/lib/gpunode-lab-kubelet
# A sandbox may not make itself less likely to be killed: runc ends otherwise.
cri='\[plugins."io.containerd.grpc.v1.cri"\]'
grep -q restrict_oom_score_adj /etc/containerd/config.toml ||
  sed -i "/$cri/a restrict_oom_score_adj = true" /etc/containerd/config.toml
mkdir -p /etc/systemd/system/containerd.service.d /etc/cni/net.d /etc/kubernetes/manifests /var/lib/kubelet
install -m 644 containerd.conf /etc/systemd/system/containerd.service.d/gpunode-lab.conf
install -m 644 10-gpunode-lab.conflist /etc/cni/net.d/10-gpunode-lab.conflist
install -D -m 755 -t /usr/lib/cni bridge host-local loopback
install -m 755 kubelet /usr/bin/kubelet
install -m 600 kubelet.conf api-server.crt /etc/kubernetes
install -m 644 kubelet.service /etc/systemd/system/kubelet.service
[ -e /var/lib/kubelet/config.yaml ] || install -m 644 kubelet.yaml /var/lib/kubelet/config.yaml
install -D -m 644 devices /var/lib/kubelet/device-plugins/gpunode-lab/devices
systemctl daemon-reload
systemctl restart containerd
systemctl enable --quiet kubelet
systemctl restart kubelet
