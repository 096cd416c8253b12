# A group of GPU machines that come and go by themselves: each pulls its bundle at first boot, and takes pods once that was
# good. Beside it lie join.yaml, and what gpunode printed:
#   gpunode agent user-data --host gpu-group --from https://bundles.example/gpunode --public-key bundles.key.pub \
#     --gate https://api.example:6443 > gpunode.yaml
# Seen by a parser of Terraform's language; no cloud ran it.

variable "image" { type = string }
variable "subnets" { type = list(string) }
variable "instance_profile" { type = string }

data "cloudinit_config" "gpu" {
  gzip          = true
  base64_encode = true

  part {
    content_type = "text/cloud-config"
    content      = file("${path.module}/join.yaml")
  }

  # Last: then the lists of the part above are kept.
  part {
    content_type = "text/cloud-config"
    content      = file("${path.module}/gpunode.yaml")
  }
}

resource "aws_launch_template" "gpu" {
  name_prefix   = "gpu-"
  image_id      = var.image
  instance_type = "p5.48xlarge"
  user_data     = data.cloudinit_config.gpu.rendered

  iam_instance_profile {
    name = var.instance_profile
  }

  # No pod gets as far as the machine's own role, and so to its token.
  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }
}

resource "aws_autoscaling_group" "gpu" {
  name                      = "gpu"
  min_size                  = 0
  max_size                  = 8
  vpc_zone_identifier       = var.subnets
  health_check_grace_period = 3600

  launch_template {
    id      = aws_launch_template.gpu.id
    version = "$Latest"
  }

  # Cluster Autoscaler: what a machine is like before there is one. It counts no taint that goes by itself
  # (--startup-taint=gpunode/unverified).
  tag {
    key                 = "k8s.io/cluster-autoscaler/enabled"
    value               = "true"
    propagate_at_launch = false
  }
}
