//! Errors of a driver as errors of a capture.

use capture::{CaptureError, CaptureErrorKind};

/// Converts a driver's error.
pub fn capture_error(error: driver::Error) -> CaptureError {
    let kind = match &error {
        driver::Error::Absent(_) => CaptureErrorKind::Absent,
        driver::Error::Invalid(_) => CaptureErrorKind::Request,
        driver::Error::NotPermitted { .. } => CaptureErrorKind::Denied,
        driver::Error::Unsupported(_) => CaptureErrorKind::Cannot,
        driver::Error::Removed(_) | driver::Error::System { .. } => CaptureErrorKind::System,
    };
    CaptureError::new(kind, error.to_string())
}
