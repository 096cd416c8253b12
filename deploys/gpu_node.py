"""Turn a machine into a verified GPU node: pyinfra inventories/prod.py deploys/gpu_node.py"""

from deploys.component import announce, settings
from deploys.containerd import containerd
from deploys.cuda import cuda
from deploys.device_plugin import device_plugin
from deploys.docker import docker
from deploys.drain import returned
from deploys.driver import driver
from deploys.interrupted import interrupted
from deploys.mig import mig
from deploys.mps import mps
from deploys.packaging import packaging
from deploys.preflight import preflight
from deploys.reboot import reboot
from deploys.toolkit import toolkit
from deploys.verify import verify
from deploys.verify_cluster import verify_cluster

# A node that preflight refuses gets the refusal and nothing else.
if preflight():
    # What they are all going to ask the node, so that one round trip answers it.
    announce(packaging, driver, reboot, cuda, mps, mig, toolkit, containerd, docker, interrupted, verify, returned)
    packaging()
    driver()
    reboot()
    cuda()
    # An MPS daemon that is to go holds its GPU, one that is to come serves GPUs that are whole again. What is made for
    # containers tells of the instances.
    if settings().mps.enabled:
        mig()
        mps()
    else:
        mps()
        mig()
    toolkit()
    containerd()
    docker()
    # Of components that are switched off by now: the others have done it themselves.
    interrupted()
    verify()
    # Once for all nodes, when they are ready for it.
    device_plugin()
    verify_cluster()
    # Last: a node that failed stays cordoned.
    returned()
