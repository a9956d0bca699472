// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results in the Test Anything Protocol, version 14.

use std::io::{self, Write};

use crate::registry::Test;

/// Why a test could not run here. Return it through `?` to skip the test.
#[derive(Debug)]
pub struct Skip(pub String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Runs `tests` in order and writes the results to `out` as they come.
///
/// Returns whether all of them passed or were skipped.
///
/// # Errors
/// Those of writing to `out`.
pub fn run<'a>(
    out: &mut impl Write,
    tests: impl ExactSizeIterator<Item = &'a Test>,
) -> io::Result<bool> {
    writeln!(out, "TAP version 14\n1..{}", tests.len())?;
    let mut good = true;
    for (test, number) in tests.zip(1..) {
        let name = test.name;
        match (test.run)() {
            Ok(()) => writeln!(out, "ok {number} - {name}")?,
            Err(error) => match error.downcast_ref::<Skip>() {
                Some(Skip(reason)) => {
                    writeln!(out, "ok {number} - {name} # SKIP {}", one_line(reason))?
                }
                None => {
                    good = false;
                    writeln!(out, "not ok {number} - {name}")?;
                    for line in format!("{error:#}").lines() {
                        writeln!(out, "# {line}")?;
                    }
                }
            },
        }
        out.flush()?;
    }
    Ok(good)
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Result, bail};

    fn output(tests: &[Test]) -> (bool, String) {
        let mut out = Vec::new();
        let good = run(&mut out, tests.iter()).unwrap();
        (good, String::from_utf8(out).unwrap())
    }

    fn pass() -> Result<()> {
        Ok(())
    }

    fn fail() -> Result<()> {
        bail!("counted 1\nwanted 2")
    }

    fn skip() -> Result<()> {
        Err(Skip("one\nCPU".into()).into())
    }

    #[test]
    fn a_failure_is_told_and_fails_the_run() {
        let tests = [Test::new("good", "", pass), Test::new("bad", "", fail)];
        let (good, text) = output(&tests);
        assert!(!good);
        assert_eq!(
            text,
            "TAP version 14\n1..2\nok 1 - good\nnot ok 2 - bad\n# counted 1\n# wanted 2\n"
        );
    }

    #[test]
    fn a_skip_says_why_and_passes() {
        let (good, text) = output(&[Test::new("lonely", "", skip)]);
        assert!(good);
        assert_eq!(text, "TAP version 14\n1..1\nok 1 - lonely # SKIP one CPU\n");
    }
}
