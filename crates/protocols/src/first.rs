//! The first bytes of one side of a stream, as probes get them.

use crate::fit::Fit;
use packet::Flow;

/// The first bytes of one side of a stream.
#[derive(Clone, Copy, Debug)]
pub struct First<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The client sends them.
    pub to_server: bool,
    /// The flow, from the client to the server.
    pub flow: &'a Flow,
}

impl First<'_> {
    /// Whether a side has this port.
    pub fn has_port(&self, port: u16) -> bool {
        has_port(self.flow, port)
    }

    /// Whether the bytes begin with one of the words.
    pub fn begins(&self, words: &[&[u8]]) -> Fit {
        begins(self.bytes, words, <[u8]>::eq)
    }

    /// The same, for letters of either case.
    pub fn begins_nocase(&self, words: &[&[u8]]) -> Fit {
        begins(self.bytes, words, <[u8]>::eq_ignore_ascii_case)
    }
}

pub(crate) fn has_port(flow: &Flow, port: u16) -> bool {
    flow.target_port == port || flow.source_port == port
}

/// Whether the bytes begin with one of the words.
pub(crate) fn begins(bytes: &[u8], words: &[&[u8]], equal: fn(&[u8], &[u8]) -> bool) -> Fit {
    let mut fit = Fit::No;
    for word in words {
        let len = word.len().min(bytes.len());
        if equal(&word[..len], &bytes[..len]) {
            if len == word.len() {
                return Fit::Is;
            }
            fit = Fit::More;
        }
    }
    fit
}
