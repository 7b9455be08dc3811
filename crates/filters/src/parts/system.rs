//! Error texts of the operating system, without the error number.

use std::io;

/// The reason alone: "No such file or directory".
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

/// Whether a write failed for lack of room: full disk, user quota, or largest file size.
pub fn is_full(error: &io::Error) -> bool {
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
