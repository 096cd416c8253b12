# Have the agent's timer run, and pull at once as long as no pull of this machine was good; end as the pull did. Run by
# cloud-init at every boot, so that a pull that a reboot cut off goes on right after it. Takes nothing.
set -u
systemctl daemon-reload
systemctl enable --quiet --now gpunode-agent.timer
grep -qs '"last_success": "' /var/lib/gpunode/agent/report.json && exit 0
# What was refused may be the network's fault, or the clock's, and pass by itself.
for pause in 5 10 20 40 0; do
  systemctl start gpunode-agent.service
  began=$?
  status=$(systemctl show -p ExecMainStatus --value gpunode-agent.service)
  # What was never started has no status of its own, or that of the time before.
  [ "$began" -eq 0 ] || [ "${status:-0}" != 0 ] || status=1
  [ "$status" = 3 ] || break
  sleep "$pause"
done
# In a reboot cloud-init would go on with the user's own commands, note them as run, and be ended before they did.
[ "$(systemctl is-system-running)" != stopping ] || sleep 60
exit "${status:-1}"
