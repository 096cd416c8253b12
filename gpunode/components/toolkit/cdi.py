"""The CDI specification that is gpunode's own: where it stands, and the line by which it is known."""

OWN_SPECIFICATION = "/etc/cdi/nvidia.yaml"
CDI_MARK = "# Written by gpunode with nvidia-ctk; changes are overwritten. toolkit.cdi = 'off' removes this file."
