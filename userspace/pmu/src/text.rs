// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers as people read them.

/// Digits in groups of three: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How much `part` is of `whole`: `12.3 %`; of nothing, 0.
pub fn percent(part: u64, whole: u64) -> String {
    let share = match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64 * 100.0,
    };
    format!("{share:.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_of_three() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (123_456, "123,456"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn percent_of_nothing_is_none() {
        assert_eq!(percent(1, 8), "12.5 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }
}
