# A head and nodes at Hetzner Cloud for a Headway cluster. Another cloud needs other resources, and the same output.

terraform {
  required_providers {
    hcloud = { source = "hetznercloud/hcloud", version = "~> 1.48" }
    tls    = { source = "hashicorp/tls", version = "~> 4.0" }
  }
}

variable "name" {
  type    = string
  default = "lab"
}

variable "nodes" {
  type    = number
  default = 2
}

variable "server_type" {
  type    = string
  default = "ccx33"
}

variable "location" {
  type    = string
  default = "fsn1"
}

# The public key that Headway's server signs in with: its private half is the file of `key` in the output below.
variable "ssh_public_key" {
  type = string
}

variable "ssh_private_key_file" {
  type        = string
  description = "Path on the machine of Headway's server."
}

locals {
  machines = concat(["${var.name}-head"], [for n in range(var.nodes) : "${var.name}-node-${n + 1}"])
}

# Each machine gets its host key from here, so that Headway trusts no key on first sight. The state contains the
# private halves: keep it encrypted.
resource "tls_private_key" "host" {
  for_each  = toset(local.machines)
  algorithm = "ED25519"
}

resource "hcloud_network" "cluster" {
  name     = var.name
  ip_range = "10.90.0.0/16"
}

resource "hcloud_network_subnet" "cluster" {
  network_id   = hcloud_network.cluster.id
  type         = "cloud"
  network_zone = "eu-central"
  ip_range     = "10.90.0.0/20"
}

resource "hcloud_ssh_key" "headway" {
  name       = "${var.name}-headway"
  public_key = var.ssh_public_key
}

resource "hcloud_server" "machine" {
  for_each    = toset(local.machines)
  name        = each.key
  server_type = var.server_type
  location    = var.location
  image       = "debian-13"
  ssh_keys    = [hcloud_ssh_key.headway.id]

  user_data = join("\n", ["#cloud-config", yamlencode({
    ssh_deletekeys = true
    ssh_keys = {
      ed25519_private = tls_private_key.host[each.key].private_key_openssh
      ed25519_public  = tls_private_key.host[each.key].public_key_openssh
    }
  })])

  network {
    network_id = hcloud_network.cluster.id
  }

  depends_on = [hcloud_network_subnet.cluster]
}

# What `hosts: {from: "tofu output -json"}` reads: fields of `hosts` in cluster.yaml, the head first. The addresses are
# private, so Headway's server is in the same network or reaches it through `jump`.
output "hosts" {
  value = [for name in local.machines : {
    address  = one(hcloud_server.machine[name].network).ip
    role     = name == "${var.name}-head" ? "head" : "node"
    key      = var.ssh_private_key_file
    host_key = trimspace(tls_private_key.host[name].public_key_openssh)
  }]
}
