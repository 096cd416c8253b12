"""Twenty MIG layouts drawn at random, one after the other in one run, each noted by what nvidia-smi lists then.

A deploy file of pyinfra's, for the scenario alone. The declaration's names are in the host's data, in their order.
"""

from pyinfra import host
from pyinfra.operations import server

from gpunode.facts.system import PciGpus
from gpunode.operations import mig
from gpunode.settings import settings_from
from gpunode.settings.hosts import data_of

asked = settings_from(data_of(host).data).mig
for name in host.loop(host.data.get("x_transitions")):
    mig.layout(
        name=f"Divide the GPUs by MIG configuration {name}",
        settings=asked.model_copy(update={"config": name}),
        gpus=host.get_fact(PciGpus).gpus,
        allowed="restart",
    )
    server.shell(
        name=f"Note what there is of {name}",
        commands=[f"{{ echo {name}; nvidia-smi mig -i 0 -lgi | grep MIG; }} >> /root/transitions"],
    )
