// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often the PMU interrupted, from /proc/interrupts.

use std::fs;
use std::io;

/// The PMU's interrupts on all CPUs since boot.
///
/// The difference between two readings is what happened between them. `None` when no line of
/// /proc/interrupts belongs to a PMU.
///
/// # Errors
/// Those of reading /proc/interrupts.
pub fn count() -> io::Result<Option<u64>> {
    Ok(parse(&fs::read_to_string("/proc/interrupts")?))
}

/// Sums the counts of every line whose last word, the name of the device, tells of a PMU.
fn parse(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let cpus = lines.next()?.split_whitespace().count();
    let mut sum = None;
    for line in lines {
        let mut words = line.split_whitespace().skip(1);
        let counts: u64 = words
            .by_ref()
            .take(cpus)
            .map_while(|word| word.parse::<u64>().ok())
            .sum();
        if words.last().is_some_and(|name| name.contains("pmu")) {
            sum = Some(sum.unwrap_or(0) + counts);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
           CPU0       CPU1
 11:        120         70    GICv3  27 Level     arch_timer
 14:         10          7    GICv3  23 Level     arm-pmu
 15:          1          0    GICv3  33 Level     uart-pl011
IPI0:        90         80       Rescheduling interrupts
Err:          0
";

    #[test]
    fn the_pmu_is_found_by_its_name() {
        assert_eq!(parse(TEXT), Some(17));
    }

    #[test]
    fn no_pmu_is_not_zero_interrupts() {
        assert_eq!(parse(&TEXT.replace("arm-pmu", "other")), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_cpu_that_is_off_line_has_no_column() {
        let text = " CPU0 CPU2\n 14: 3 4 GICv3 23 Level rust_pmuv3\n";
        assert_eq!(parse(text), Some(7));
    }
}
