//! Filters that write records as tables of columns, for pandas, polars, DuckDB and what else reads Arrow.
//!
//! They are built in with the feature `arrow`, because the crates of Arrow take two minutes of a processor to build. Without
//! it the crate has no filters, and [`LEFT_OUT`] says how to get them.
//!
//! - `parts/table.rs` — rows of one schema as columns; both filters use it.

#![forbid(unsafe_code)]

#[cfg(feature = "arrow")]
mod parts;

filter::filters! {
    #[cfg(feature = "arrow")]
    arrow,
    #[cfg(feature = "arrow")]
    parquet,
}

/// The filters that this build lacks, each with how to get it.
pub static LEFT_OUT: &[(&str, &str)] = if cfg!(feature = "arrow") { &[] } else { &[("arrow", HOW), ("parquet", HOW)] };

const HOW: &str =
    "this program was built without it: packages have it, and `cargo build -p cli --features arrow` builds it in";
