//! Lines out of a stream that comes in pieces, for the protocols that speak in lines.

use base::limits::TEXT_LINE_BYTES;

/// The line under way of one side.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Vec<u8>,
}

impl Lines {
    /// Calls for each line that ends in these bytes, without its end.
    pub fn each(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let take = part.len().min(TEXT_LINE_BYTES.saturating_sub(self.waiting.len()));
            self.waiting.extend_from_slice(&part[..take]);
            if part.ends_with(b"\n") {
                let text = self.waiting.strip_suffix(b"\n").unwrap_or(&self.waiting);
                line(text.strip_suffix(b"\r").unwrap_or(text));
                self.waiting.clear();
            }
        }
    }
}
