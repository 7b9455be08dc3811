//! The size limits of a request, by name. A request beyond one gets an error that says so; it never crashes the parser.

/// Longest source text, in bytes. It bounds offsets, token counts and the work of each pass.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting of groups, `not` and (when expanding) uses of `let`. Parsers, printers and comparisons recurse at
/// most this deep, so it bounds the stack as well.
pub const NESTING_MAX: usize = 64;

/// Most filters, references, groups and boolean operators in one text, counted again after `let` is expanded.
pub const TERM_COUNT_MAX: usize = 16 * 1024;

/// Most bytes of names and values that expansion may copy. A long value in a `let` that is used often reaches this
/// before [`TERM_COUNT_MAX`].
pub const EXPANDED_BYTES_MAX: usize = 8 * SOURCE_BYTES_MAX;

/// Columns that the formatter fills before it breaks an item over several lines.
pub const PRINT_COLUMNS: usize = 100;

/// Columns of source text that an error shows; a longer line is cut around the caret.
pub const RENDER_COLUMNS: usize = 100;

// A text that parses must also print and expand unchanged.
const _: () = assert!(EXPANDED_BYTES_MAX >= SOURCE_BYTES_MAX);
