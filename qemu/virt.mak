# SPDX-License-Identifier: GPL-2.0
#
# The machine and the devices that scripts/qemu builds: QEMU's virt, which brings the interrupt
# controller, the serial ports, the flash, the PCI host bridge and the MMIO slots for virtio, and the
# folders of the host in such a slot.

CONFIG_ARM_VIRT=y
CONFIG_VIRTIO_9P=y
