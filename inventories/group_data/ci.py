"""Settings of the continuous-integration machine: everything by default, and it may be rebooted."""

driver = {"branch": "580", "flavour": "auto"}
cuda = {"version": "12.9"}
disruption = {"allow": "reboot", "max_parallel": 1}
