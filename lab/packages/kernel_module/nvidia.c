// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * SIMULATED nvidia of gpunode's lab: a real kernel module that DKMS builds and modprobe loads, with no GPU behind it.
 * It binds QEMU's pci-testdev, which stands in for the GPU: whoever has the device first, this one or nouveau, keeps it.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

static unsigned int NVreg_EnableGpuFirmware = 18;
module_param(NVreg_EnableGpuFirmware, uint, 0);
MODULE_PARM_DESC(NVreg_EnableGpuFirmware, "SIMULATED: shown in /proc/driver/nvidia/params, and of no effect");

static struct proc_dir_entry *folder;
static int devices;

static int lab_version(struct seq_file *file, void *unused)
{
	seq_puts(file, "NVRM version: NVIDIA UNIX " LAB_TITLE "  " LAB_VERSION "  Release Build  (gpunode-lab@SIMULATED)\n");
	seq_puts(file, "GCC version:  " LAB_COMPILER "\n");
	return 0;
}

static int lab_params(struct seq_file *file, void *unused)
{
	seq_printf(file, "EnableGpuFirmware: %u\n", NVreg_EnableGpuFirmware);
	return 0;
}

static int lab_probe(struct pci_dev *device, const struct pci_device_id *id)
{
	devices++;
	return 0;
}

static void lab_remove(struct pci_dev *device)
{
	devices--;
}

static const struct pci_device_id lab_ids[] = { { PCI_DEVICE(0x1b36, 0x0005) }, { } };
MODULE_DEVICE_TABLE(pci, lab_ids);

static struct pci_driver lab_driver = {
	.name = "nvidia",
	.id_table = lab_ids,
	.probe = lab_probe,
	.remove = lab_remove,
};

static int __init lab_start(void)
{
	int error = pci_register_driver(&lab_driver);

	if (error)
		return error;
	if (!devices) {
		pr_err("NVRM: SIMULATED: no device to drive: another driver, such as nouveau, has it\n");
		pci_unregister_driver(&lab_driver);
		return -ENODEV;
	}
	folder = proc_mkdir("driver/nvidia", NULL);
	if (folder) {
		proc_create_single("version", 0444, folder, lab_version);
		proc_create_single("params", 0444, folder, lab_params);
	}
	pr_info("NVRM: SIMULATED: loading the module of gpunode's lab " LAB_VERSION "\n");
	return 0;
}

static void __exit lab_end(void)
{
	proc_remove(folder);
	pci_unregister_driver(&lab_driver);
}

int lab_nvidia_is_there(void);
int lab_nvidia_is_there(void)
{
	return devices;
}
EXPORT_SYMBOL(lab_nvidia_is_there);

module_init(lab_start);
module_exit(lab_end);
MODULE_DESCRIPTION("SIMULATED NVIDIA kernel module of gpunode's lab");
MODULE_LICENSE(LAB_LICENSE);
MODULE_VERSION(LAB_VERSION);
