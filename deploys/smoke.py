"""Test nodes by containers: pyinfra inventories/prod.py deploys/smoke.py"""

from deploys.verify import smoke

smoke()
