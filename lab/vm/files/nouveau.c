// SPDX-License-Identifier: MIT OR GPL-2.0
/* SIMULATED nouveau of gpunode's lab: it binds what stands in for the GPU, as nouveau would, and does nothing with it. */
#include <linux/module.h>
#include <linux/pci.h>

static int modeset = -1;
module_param(modeset, int, 0400);

static int lab_probe(struct pci_dev *device, const struct pci_device_id *id)
{
	pr_info("nouveau: SIMULATED: has the GPU\n");
	return 0;
}

static const struct pci_device_id lab_ids[] = { { PCI_DEVICE(0x1b36, 0x0005) }, { } };
MODULE_DEVICE_TABLE(pci, lab_ids);

static struct pci_driver lab_driver = { .name = "nouveau", .id_table = lab_ids, .probe = lab_probe };

module_pci_driver(lab_driver);
MODULE_DESCRIPTION("SIMULATED nouveau of gpunode's lab");
MODULE_LICENSE("Dual MIT/GPL");
