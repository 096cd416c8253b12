"""What several tests share with unit/test_mig_check.py."""

DECLARATION = """version: v1
mig-configs:
  mixed:
    - devices: all
      mig-enabled: true
      mig-devices: {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
  too-much:
    - devices: [0, -1]
      mig-enabled: true
      mig-devices: {"3g.40gb": 2, "1g.10gb": 1}
  ampere:
    - device-filter: "0x20B010DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.5gb": 7}
"""
