# Has the toolkit's own service make the CDI specification $target, on top of cdi.sh.

# shellcheck disable=SC2154  # set by the caller

systemctl enable --now nvidia-cdi-refresh.path
systemctl enable nvidia-cdi-refresh.service
systemctl restart nvidia-cdi-refresh.service || {
  service_state nvidia-cdi-refresh.service
  echo "gpunode: the toolkit's own nvidia-cdi-refresh.service failed" >&2
  echo "gpunode: remedy: see \`systemctl status nvidia-cdi-refresh.service\` on the node; where nvidia-smi fails," \
    "correct" \
    "the driver first; run again" >&2
  exit 1; }
[ -f "$target" ] || {
  echo "gpunode: nvidia-cdi-refresh.service made no $target" >&2
  echo "gpunode: remedy: see \`systemctl status nvidia-cdi-refresh\` and where" \
    "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env has it write, and run again" >&2
  exit 1; }
proven "$target"
aside
