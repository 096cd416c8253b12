# Has the toolkit's own service make the CDI specification $target, on top of cdi.sh.

# shellcheck disable=SC2154  # set by whoever sends it

systemctl enable --now nvidia-cdi-refresh.path
systemctl enable nvidia-cdi-refresh.service
systemctl restart nvidia-cdi-refresh.service || {
  journalctl -u nvidia-cdi-refresh.service -n 8 --no-pager -o cat >&2
  echo "gpunode: the toolkit's own nvidia-cdi-refresh.service failed; its words are above" >&2; exit 1; }
[ -f "$target" ] || {
  echo "gpunode: nvidia-cdi-refresh.service made no $target; see \`systemctl status nvidia-cdi-refresh\` and" \
    "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env" >&2; exit 1; }
proven "$target"
aside
