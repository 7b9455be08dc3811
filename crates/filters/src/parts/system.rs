//! What the operating system says went wrong, in its words and without its number.

use std::io;

/// The reason alone: "No such file or directory".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

/// Is there no room for what was to be written: on the disk, in the user's share of it, or in the one file?
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_left_out() {
        let check = |error: io::Error, expected: &str| assert_eq!(reason(&error), expected);
        check(io::Error::from_raw_os_error(2), "No such file or directory");
        check(io::Error::from_raw_os_error(28), "No space left on device");
        check(io::Error::other("made up"), "made up");
    }
}
