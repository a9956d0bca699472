// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random choices.

use fastrand::Rng;

/// A generator for the part `index` of what `seed` stands for, so that one part can be had without
/// those before it.
pub fn part(seed: u64, index: u64) -> Rng {
    // Seeds side by side give unlike sequences only once they are far apart.
    let mut rng = Rng::with_seed(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    rng.fork()
}

/// One of `values`.
pub fn one<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[rng.usize(..values.len())]
}

/// True in `percent` of 100 cases.
pub fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(..100) < percent
}

/// One of a few values, or any.
pub fn one_or_any(rng: &mut Rng, values: &[u64]) -> u64 {
    match chance(rng, 95) {
        true => one(rng, values),
        false => rng.u64(..),
    }
}
