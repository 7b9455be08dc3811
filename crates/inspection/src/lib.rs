//! Filters that look at traffic with rules of intrusion detection: [`rules`](mod@rules) gives alerts, [`ips`] stops frames.
//!
//! The crate `rules` has the language and the matching. The folder `rules` has what is matched: frames, flows and the
//! messages in them, which conversations of the crate `protocols` tell.

#![forbid(unsafe_code)]

filter::filters! {
    ips,
    rules,
}
