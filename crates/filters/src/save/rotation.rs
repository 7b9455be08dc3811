//! A series of files: when the next one begins, its name, and which old file is removed. Touches no file itself.

use filter::{ParamError, Params};
use packet::time::rfc3339;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// When the next file begins.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    bytes: Option<u64>,
    every_ns: Option<u64>,
    keep: Option<u64>,
    /// Number of files begun.
    count: u64,
    /// The multiple of `every_ns` that the current file covers.
    period: u64,
    /// Files of this run that still exist, oldest first.
    kept: VecDeque<OsString>,
}

impl Rotation {
    pub(super) fn new(params: &Params) -> Result<Rotation, ParamError> {
        let [bytes, every_ns, keep] = ["rotate-size", "rotate-time", "rotate-keep"].map(|key| params.number(key));
        for (key, value) in [("rotate-size", bytes), ("rotate-time", every_ns), ("rotate-keep", keep)] {
            if value == Some(0) {
                return Err(ParamError::new(key, format!("{key} must be more than 0")));
            }
        }
        if keep.is_some() && bytes.is_none() && every_ns.is_none() {
            return Err(ParamError::new("rotate-keep", "there is only one file without rotate-size or rotate-time"));
        }
        Ok(Rotation { bytes, every_ns, keep, ..Rotation::default() })
    }

    /// Whether the request asks for a series.
    pub(super) fn is_wanted(&self) -> bool {
        self.bytes.is_some() || self.every_ns.is_some()
    }

    /// Whether a frame of this time belongs into the next file. `bytes`: length of the current file.
    #[inline]
    pub(super) fn is_due(&self, time: u64, bytes: u64) -> bool {
        // Times may go backwards; the series does not.
        self.bytes.is_some_and(|limit| bytes >= limit) || self.every_ns.is_some_and(|every| time / every > self.period)
    }

    /// Begins a file with a frame of this time and returns its name.
    pub(super) fn begin(&mut self, name: &OsStr, time: u64) -> OsString {
        self.count += 1;
        self.period = self.every_ns.map_or(0, |every| time / every);
        if !self.is_wanted() {
            return name.to_os_string();
        }
        let name = numbered(name, self.count, time);
        if self.keep.is_some() {
            self.kept.push_back(name.clone());
        }
        name
    }

    /// The oldest file, if there are more than `keep`.
    pub(super) fn too_old(&mut self) -> Option<OsString> {
        let too_many = self.keep.is_some_and(|keep| self.kept.len() as u64 > keep);
        if too_many { self.kept.pop_front() } else { None }
    }
}

/// `x.pcapng` with a number and a time: `x_00001_20260102030405.pcapng`.
fn numbered(name: &OsStr, count: u64, time: u64) -> OsString {
    let text = rfc3339(time);
    let digits: String = text[..19].iter().filter(|byte| byte.is_ascii_digit()).map(|byte| char::from(*byte)).collect();
    let whole = Path::new(name);
    let mut name = OsString::from(whole.file_stem().unwrap_or_default());
    name.push(format!("_{count:05}_{digits}"));
    if let Some(ending) = whole.extension() {
        name.push(".");
        name.push(ending);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |path: &str, expected: &str| {
            assert_eq!(numbered(OsStr::new(path), 7, 1_767_323_045_999_999_999), OsStr::new(expected));
        };
        check("x.pcapng", "x_00007_20260102030405.pcapng");
        check("x.y.pcap", "x.y_00007_20260102030405.pcap");
        check("x", "x_00007_20260102030405");
    }
}
