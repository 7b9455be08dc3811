//! The request language (SRL): one line of text says which filters see which blocks.
//!
//! Text becomes a tree ([`parse`]), a tree becomes text ([`print()`], [`print_paper`]), and `let` and `$x` are
//! filled in ([`expand`]). Two notations, one tree: `a | b` and `(a) > (b)` compare equal.
//!
//! This crate is pure: it opens nothing and knows no filter. The control plane decides whether `http` exists, what it
//! takes and what may be before it. It reports errors with the same [`Diagnostic`].
//!
//! Read next: `grammar.md` beside this crate's manifest for the language, [`tree`] for the tree, then `pipe.rs` for the
//! parser of most texts.
#![forbid(unsafe_code)]

mod begin;
mod diagnostic;
mod expand;
mod flat;
mod lets;
mod lexer;
pub mod limits;
mod paper;
mod params;
mod parser;
mod pipe;
mod print;
mod references;
mod selector;
pub mod tree;
mod value;

pub use base::nearest;
pub use begin::{Role, begin_with, put_behind_sources};
pub use diagnostic::{Diagnostic, Span};
pub use expand::expand;
pub use parser::parse;
pub use print::{print, print_paper};
pub use tree::{
    Chain, Comment, Edge, FilterCall, Item, Layout, Link, Name, Notation, Par, Param, Selector, Term, Text, Value,
    Variable,
};
