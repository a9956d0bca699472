// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which kernel this is and which driver serves its CPU PMU.

use std::fs;
use std::path::Path;

/// The kernel's release, as `uname -r` prints it.
pub fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// The name of the platform driver that is bound to the PMU's device, such as `armv8-pmu` or
/// `rust_pmuv3`; `None` where no such device has a driver.
pub fn driver() -> Option<String> {
    driver_in(Path::new("/sys/bus/platform/devices"))
}

/// Looks for a device whose name or whose driver's name tells of a PMU: device trees call it
/// `pmu` or `arm-pmu`, ACPI `armv8-pmu.N`.
fn driver_in(devices: &Path) -> Option<String> {
    let mut found: Vec<String> = fs::read_dir(devices)
        .ok()?
        .flatten()
        .filter(|device| device.file_name().to_string_lossy().contains("pmu"))
        .filter_map(|device| fs::read_link(device.path().join("driver")).ok())
        .filter_map(|driver| Some(driver.file_name()?.to_string_lossy().into_owned()))
        .collect();
    found.sort();
    found.dedup();
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_bound_driver_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("pmu");
        fs::create_dir(&device).unwrap();
        assert_eq!(driver_in(dir.path()), None);
        symlink(
            "../../bus/platform/drivers/rust_pmuv3",
            device.join("driver"),
        )
        .unwrap();
        assert_eq!(driver_in(dir.path()), Some("rust_pmuv3".to_owned()));
    }
}
