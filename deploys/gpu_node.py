"""Turn a machine into a verified GPU node: pyinfra inventories/prod.py deploys/gpu_node.py"""

from gpunode.deploys.component import announce, settings
from gpunode.deploys.containerd import containerd
from gpunode.deploys.crio import crio
from gpunode.deploys.cuda import cuda
from gpunode.deploys.dcgm import dcgm
from gpunode.deploys.device_plugin import device_plugin
from gpunode.deploys.docker import docker
from gpunode.deploys.drain import uncordon
from gpunode.deploys.driver import driver
from gpunode.deploys.image import image
from gpunode.deploys.imex import imex
from gpunode.deploys.interrupted import interrupted
from gpunode.deploys.kubelet import kubelet
from gpunode.deploys.mig import mig
from gpunode.deploys.mps import mps
from gpunode.deploys.packaging import packaging
from gpunode.deploys.podman import podman
from gpunode.deploys.power import power
from gpunode.deploys.preflight import preflight
from gpunode.deploys.reboot import reboot
from gpunode.deploys.slurm import slurm
from gpunode.deploys.toolkit import toolkit
from gpunode.deploys.verify import verify
from gpunode.deploys.verify_cluster import verify_cluster

# A node that preflight refuses gets the refusal and nothing else.
if preflight():
    # What they are all going to ask the node, so that one round trip answers it.
    announce(
        packaging,
        driver,
        reboot,
        cuda,
        imex,
        mps,
        mig,
        power,
        toolkit,
        containerd,
        docker,
        podman,
        crio,
        slurm,
        kubelet,
        dcgm,
        interrupted,
        verify,
        uncordon,
    )
    packaging()
    driver()
    reboot()
    cuda()
    imex()
    # An MPS daemon that is to go holds its GPU, one that is to come serves GPUs that are whole again. What is made for
    # containers tells of the instances.
    if settings().mps.enabled:
        mig()
        mps()
    else:
        mps()
        mig()
    # A reset for MIG takes limits and clocks away.
    power()
    toolkit()
    containerd()
    docker()
    podman()
    crio()
    slurm()
    kubelet()
    dcgm()
    # Of components that are switched off by now: the others have done it themselves.
    interrupted()
    image()
    verify()
    # Once for all nodes, when they are ready for it.
    device_plugin()
    verify_cluster()
    # Last: a node that failed stays cordoned.
    uncordon()
