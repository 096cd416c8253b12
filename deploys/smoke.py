"""Test nodes by containers: pyinfra inventories/prod.py deploys/smoke.py"""

from gpunode.deploys.verify import smoke

smoke()
