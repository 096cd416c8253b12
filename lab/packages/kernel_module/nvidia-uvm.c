// SPDX-License-Identifier: MIT OR GPL-2.0
/* SIMULATED nvidia_uvm of gpunode's lab: it needs nvidia, and has the numbers of its devices, which nobody answers. */
#include <linux/fs.h>
#include <linux/module.h>

/* As the real one: it names them in /proc/devices, and leaves the files to nvidia-modprobe. */
static dev_t first;

int lab_nvidia_is_there(void);

static int __init lab_start(void)
{
	if (!lab_nvidia_is_there())
		return -ENODEV;
	return alloc_chrdev_region(&first, 0, 2, "nvidia-uvm");
}

static void __exit lab_end(void)
{
	unregister_chrdev_region(first, 2);
}

module_init(lab_start);
module_exit(lab_end);
MODULE_DESCRIPTION("SIMULATED NVIDIA UVM kernel module of gpunode's lab");
MODULE_LICENSE(LAB_LICENSE);
MODULE_VERSION(LAB_VERSION);
