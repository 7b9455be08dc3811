//! How large a request may be: every bound this crate keeps, by name. Reaching one is an error in the request that
//! says so, never a crash.

/// Longest source text, in bytes. Offsets, token counts and the work of every pass follow from it.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting of groups, `not` and (when expanding) uses of `let`. Parsers, printers and comparisons recurse
/// this deep at most, so it also bounds the stack.
pub const NESTING_MAX: usize = 64;

/// Most filters, references, groups and boolean operators in one text, counted again after `let` is expanded.
pub const TERM_COUNT_MAX: usize = 16 * 1024;

/// Most bytes of names and values that expansion may copy. A long value in a `let` that is used often reaches this
/// before [`TERM_COUNT_MAX`].
pub const EXPANDED_BYTES_MAX: usize = 8 * SOURCE_BYTES_MAX;

/// Columns the formatter fills before it breaks an item over several lines.
pub const PRINT_COLUMNS: usize = 100;

/// Columns of source text an error shows before it cuts a window around the caret.
pub const RENDER_COLUMNS: usize = 100;

// What parses must also print and expand unchanged.
const _: () = assert!(EXPANDED_BYTES_MAX >= SOURCE_BYTES_MAX);
