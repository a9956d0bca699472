// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which known names are near to one that is not known.

/// How many names are worth showing.
const SHOWN: usize = 3;

/// The known names that are likely meant by `name`, the likeliest first.
///
/// Near is what a few typing errors lead to (insertions, deletions, replacements, swaps: one for
/// every three letters, but two in short names), or what `name` is the beginning of.
pub(super) fn names(name: &str, known: impl Iterator<Item = String>) -> Vec<String> {
    let wanted = name.to_ascii_lowercase();
    let limit = (wanted.chars().count() / 3).max(2);
    let near = known.filter_map(|candidate| {
        let lower = candidate.to_ascii_lowercase();
        let distance = match !wanted.is_empty() && lower.starts_with(&wanted) {
            true => 1,
            false => strsim::damerau_levenshtein(&wanted, &lower),
        };
        // Nothing is left of a short name of which every letter may be wrong.
        let alike = distance <= limit && distance < wanted.chars().count();
        alike.then_some((distance, candidate))
    });
    let mut near: Vec<_> = near.collect();
    near.sort();
    near.dedup();
    near.into_iter().take(SHOWN).map(|(_, name)| name).collect()
}

/// The first few of many names, as one text.
pub(super) fn some_of<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    const LISTED: usize = 12;
    let all = names.len();
    let listed: Vec<_> = names.take(LISTED).map(String::as_str).collect();
    match listed.len() < all {
        true => format!("{}... ({all} in all)", listed.join(", ")),
        false => listed.join(", "),
    }
}
