// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests, by theme.

pub mod acpi;
pub mod clients;
pub mod counting;
pub mod events;
pub mod examples;
pub mod faults;
pub mod features;
pub mod groups;
pub mod hotplug;
pub mod module;
pub mod ring;
pub mod sampling;
pub mod spi;
pub mod sysfs;
pub mod targets;
