// SPDX-License-Identifier: MIT OR Apache-2.0
//! From many samples to a profile: shares of functions, and stacks for a flame graph.

mod folded;

pub use folded::FoldedStacks;

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::symbols::Frame;

/// What stands for a function whose name is not known.
pub(crate) const UNKNOWN: &str = "[unknown]";

/// How often each function was sampled.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    functions: HashMap<Key, Counts>,
    weight: u64,
    samples: u64,
}

/// Name and object: two libraries may have a function of one name.
type Key = (Arc<str>, Option<Arc<str>>);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    own: u64,
    total: u64,
}

/// A function's part of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionShare {
    /// The function, `[unknown]` for addresses without a name.
    pub name: Arc<str>,
    /// The file, module or kernel that it is in.
    pub object: Option<Arc<str>>,
    /// The weight of the samples that were taken in the function itself.
    pub self_weight: u64,
    /// The weight of the samples taken in the function or in what it called. A sample counts
    /// once, however often a recursion put the function on the stack.
    pub total_weight: u64,
    /// `self_weight` as a part of the whole profile, from 0 to 1.
    pub self_share: f64,
    /// `total_weight` as a part of the whole profile, from 0 to 1.
    pub total_share: f64,
}

impl Profile {
    /// Adds a sample: its frames, the innermost first, and what it weighs, which is 1 to count
    /// samples, or its period to count events. A sample without frames counts to the whole only.
    pub fn add(&mut self, frames: &[Frame], weight: u64) {
        self.samples += 1;
        self.weight = self.weight.saturating_add(weight);
        let mut seen = HashSet::new();
        for (index, frame) in frames.iter().enumerate() {
            let key = key(frame);
            if !seen.insert(key.clone()) {
                continue;
            }
            let counts = self.functions.entry(key).or_default();
            counts.total = counts.total.saturating_add(weight);
            if index == 0 {
                counts.own = counts.own.saturating_add(weight);
            }
        }
    }

    /// The number of samples added.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The weight of all samples.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// All functions, those with the largest own part first; equal ones by total and name.
    pub fn functions(&self) -> Vec<FunctionShare> {
        // Nothing is a part of an empty profile; 0 / 1 says so without a special case.
        let whole = self.weight.max(1) as f64;
        let share = |((name, object), counts): (&Key, &Counts)| FunctionShare {
            name: name.clone(),
            object: object.clone(),
            self_weight: counts.own,
            total_weight: counts.total,
            self_share: counts.own as f64 / whole,
            total_share: counts.total as f64 / whole,
        };
        let mut functions: Vec<_> = self.functions.iter().map(share).collect();
        functions.sort_by(|a, b| {
            let weights = |f: &FunctionShare| (f.self_weight, f.total_weight);
            let names = |f: &FunctionShare| (f.name.clone(), f.object.clone());
            weights(b)
                .cmp(&weights(a))
                .then_with(|| names(a).cmp(&names(b)))
        });
        functions
    }
}

fn key(frame: &Frame) -> Key {
    let name = frame.symbol.as_ref().map(|symbol| symbol.name.clone());
    (name.unwrap_or_else(|| UNKNOWN.into()), frame.object.clone())
}
