// SPDX-License-Identifier: MIT OR GPL-2.0
/* SIMULATED nvidia_uvm of gpunode's lab: it needs nvidia, and does nothing. */
#include <linux/module.h>

int lab_nvidia_is_there(void);

static int __init lab_start(void)
{
	return lab_nvidia_is_there() ? 0 : -ENODEV;
}

static void __exit lab_end(void)
{
}

module_init(lab_start);
module_exit(lab_end);
MODULE_DESCRIPTION("SIMULATED NVIDIA UVM kernel module of gpunode's lab");
MODULE_LICENSE(LAB_LICENSE);
MODULE_VERSION(LAB_VERSION);
